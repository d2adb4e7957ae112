// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// The standard streams of a rank, in torchrun's numbers, which may be added.
constexpr int stdout_stream = 1;
constexpr int stderr_stream = 2;

/// The targets of one stream of a rank.
struct StreamTargets {
  bool file = false;
  bool console = true;     ///< lockrun's own output
  bool is_tagged = false;  ///< each line on the console begins with the rank
};

/// The options --log-dir, --redirects, --tee and --local-ranks-filter. A choice of streams is one number for
/// all ranks or a list such as "0:1,1:3" of local ranks and their numbers.
struct RankLogs {
  std::string folder = {};       ///< of log files and failure.json; empty: none
  std::string redirects = "0";   ///< streams that go to a file only
  std::string tee = "0";         ///< streams that go to a file and to the console
  std::string shown_ranks = {};  ///< local ranks that the console shows: "0,1"; empty: all

  StreamTargets targets(int stream, int local_rank) const;
};

/// Returns the streams that a choice has for a local rank; nothing if it is not a choice.
std::optional<int> streams_in(const std::string& choice, int local_rank);
/// Returns whether a list such as "0,2" has this rank; nothing if it is not a list of ranks.
std::optional<bool> has_rank(const std::string& list, int rank);

/// Makes the folder. If streams go to files and no folder is given, makes a temporary one and logs its path.
/// Throws UserError or Error with the path and the reason.
void make_log_folder(RankLogs& logs);

}  // namespace lockstep
