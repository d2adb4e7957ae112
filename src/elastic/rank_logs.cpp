// SPDX-License-Identifier: Apache-2.0
#include "lockstep/elastic/rank_logs.h"

#include <filesystem>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr int most_streams = stdout_stream + stderr_stream;
constexpr int most_local_ranks = 1 << 20;

std::optional<int> number_up_to(int most, const std::string& text) {
  const std::optional<int> number = number_in<int>(text);
  return number && *number >= 0 && *number <= most ? number : std::nullopt;
}

}  // namespace

std::optional<int> streams_in(const std::string& choice, int local_rank) {
  if (choice.find(':') == std::string::npos) return number_up_to(most_streams, choice);
  int found = 0;
  std::istringstream entries(choice);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t colon = std::min(entry.find(':'), entry.size());
    const std::optional<int> rank = number_up_to(most_local_ranks, entry.substr(0, colon));
    const std::optional<int> streams = number_up_to(most_streams, entry.erase(0, colon + 1));
    if (!rank || !streams) return std::nullopt;
    if (*rank == local_rank) found = *streams;
  }
  return found;
}

std::optional<bool> has_rank(const std::string& list, int rank) {
  bool is_there = false;
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::optional<int> one = number_up_to(most_local_ranks, entry);
    if (!one) return std::nullopt;
    is_there |= *one == rank;
  }
  return is_there;
}

StreamTargets RankLogs::targets(int stream, int local_rank) const {
  const bool is_redirected = (streams_in(redirects, local_rank).value_or(0) & stream) != 0;
  const bool is_tagged = (streams_in(tee, local_rank).value_or(0) & stream) != 0;
  const bool is_shown = shown_ranks.empty() || has_rank(shown_ranks, local_rank).value_or(true);
  return {.file = is_redirected || is_tagged,
          .console = is_shown && (is_tagged || !is_redirected),
          .is_tagged = is_tagged};
}

void make_log_folder(RankLogs& logs) {
  if (logs.folder.empty() && logs.redirects == "0" && logs.tee == "0") return;
  if (logs.folder.empty()) {
    logs.folder = make_temporary_folder("lockrun-logs");
    return log_info(concat("lockrun: the ranks' logs are in ", logs.folder));
  }
  std::error_code problem;
  std::filesystem::create_directories(logs.folder, problem);
  require_of_system(!problem, problem.value(),
                    concat("--log-dir: cannot make ", logs.folder, ": ", problem.message()));
}

}  // namespace lockstep
