// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/flight_recorder.h"
#include "core/process.h"

namespace lockstep {

/// How often both ends of a node's connection say that they are alive, and when they are taken for dead.
constexpr double node_beat_seconds = 1.0;
constexpr double node_silence_seconds = 6.0;

/// What a node says about itself when it joins.
struct NodeFacts {
  int node_rank = -1;        ///< -1: any
  std::string host = {};     ///< its name
  std::string process = {};  ///< tells its lockrun from others
  std::string address = {};  ///< its number as the rendezvous sees it
  std::string network = {};  ///< of that number: "10.0.0.0/24"
  int slots = 1;             ///< ranks it takes
  std::string run = {};      ///< the run's id
  int least_nodes = 1;
  int most_nodes = 1;

  /// "node 1 (host-b, 10.0.0.2)".
  std::string name() const;
};

/// What the lockrun of a node, the rendezvous and the launch agents tell each other.
struct NodeMessage {
  enum class Kind {
    join,              ///< node: `facts`
    welcome,           ///< rendezvous: `process` is the node's rank
    refused,           ///< rendezvous: `text` says why; `code` 2 if asking again cannot help
    beat,              ///< both: I am alive
    start,             ///< run `text` in a shell, as `process`; from an agent, on the node `host`
    kill,              ///< end `process`
    output,            ///< `process` wrote `text`
    ended,             ///< `process` left with `code`
    end_generation,    ///< end every process, then answer
    generation_ended,  ///< nothing runs any more
    stop,              ///< node: it was asked for a snapshot and an end
    finish,            ///< the run is over: leave with `code`
    count
  };

  Kind kind = Kind::beat;
  int process = 0;
  int code = 0;
  std::string text = {};
  std::string host = {};
  NodeFacts facts = {};

  std::string encode() const;
  /// Throws Error if it is not a message.
  static NodeMessage decode(std::string_view bytes);
};

/// A keeper reports while its rank gets on, and at least so often; after so long a silence it is taken for
/// dead.
constexpr double keeper_beat_seconds = 5.0;
constexpr double keeper_silence_seconds = 30.0;

/// What a keeper tells about its rank.
struct RankReport {
  int rank = -1;
  std::string host;
  std::string machine = {};  ///< tells hosts of the same name apart
  int process = 0;           ///< 0: not started yet
  int64_t step = 0;
  int64_t replicas = 0;                      ///< of the run; 0: not known yet
  int64_t snapshot_step = -1;                ///< -1: none yet
  double snapshot_seconds = 0.0;             ///< what writing the last one took; 0: none yet
  std::string phase = {};                    ///< "training"; empty: not known
  bool has_ended = false;                    ///< what follows is known once it has
  Ending ending = {};                        ///< how
  bool was_ended = false;                    ///< by its keeper, because the attempt was over
  bool is_lost = false;                      ///< its keeper is gone, so nothing is known about its end
  double stuck_seconds = 0.0;                ///< not 0: it was ended because it had not got on for so long
  bool was_stopped = false;                  ///< by SIGSTOP, when it was ended
  std::string failure = {};                  ///< in its own words; empty if it had none
  std::vector<std::string> last_lines = {};  ///< of its stderr
  FlightRecord last_collective = {};         ///< sequence 0: none
};

/// What a keeper does, as its supervisor tells it once they are connected.
struct RankPlan {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string folder;  ///< for heartbeat and flight record; made where it does not exist
};

/// Messages between a keeper and its supervisor, as JSON. What is read throws Error if it is none.
std::string to_json(const RankReport& report);
std::string to_json(const RankPlan& plan);
RankReport report_from_json(const std::string& text);
RankPlan plan_from_json(const std::string& text);

/// What else the two say to each other.
constexpr const char* stop_message = "stop";    ///< to a keeper: the rank is to write a snapshot and leave
constexpr const char* end_message = "end";      ///< to a keeper: end the rank, report and leave
constexpr const char* asked_message = "asked";  ///< from a keeper: it was told to stop by SIGUSR1

}  // namespace lockstep
