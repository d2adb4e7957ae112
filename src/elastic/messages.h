// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/flight_recorder.h"
#include "lockstep/core/process.h"
#include "lockstep/elastic/rank_logs.h"

namespace lockstep {

/// Heartbeats on a node's connection, in both directions.
constexpr double node_beat_seconds = 1.0;     ///< between two heartbeats
constexpr double node_silence_seconds = 6.0;  ///< without a message, after which the other end counts as lost

/// Facts about a node, which it sends when it joins.
struct NodeFacts {
  int node_rank = -1;        ///< -1: any
  std::string host = {};     ///< the host's name
  std::string process = {};  ///< identifies its lockrun process
  std::string address = {};  ///< its numeric address on the connection to the rendezvous
  int slots = 1;             ///< ranks that it runs
  std::string run = {};      ///< the run's id
  int least_nodes = 1;
  int most_nodes = 1;

  /// Returns the node's name for messages: "node 1 (host-b, 10.0.0.2)".
  std::string name() const;
};

/// A message between the lockrun of a node and the rendezvous.
struct NodeMessage {
  enum class Kind {
    join,              ///< node: `facts`
    welcome,           ///< rendezvous: `number` is the node's rank
    refused,           ///< rendezvous: `text` is the reason; `code` 2 if another try cannot help
    beat,              ///< both: a heartbeat
    start,             ///< rendezvous: start lockrun_host as node `number` of the attempt; `text`: endpoint
    host_ended,        ///< node: its lockrun_host has ended or did not start; `text` is the reason
    end_generation,    ///< rendezvous: end every process, then send generation_ended
    generation_ended,  ///< node: all processes have ended
    stop,              ///< node: it was asked for a snapshot and the end of the run
    finish,            ///< rendezvous: the run is over: exit with `code`
    count
  };

  Kind kind = Kind::beat;
  int number = 0;
  int code = 0;
  std::string text = {};
  NodeFacts facts = {};

  std::string encode() const;
  /// Throws Error if it is not a message.
  static NodeMessage decode(std::string_view bytes);
};

/// Reports of a keeper. It also reports whenever its rank makes progress.
constexpr double keeper_beat_seconds = 5.0;      ///< at most between two reports
constexpr double keeper_silence_seconds = 30.0;  ///< without a report, after which the keeper counts as lost

/// A keeper's report about its rank.
struct RankReport {
  int rank = -1;
  std::string host;
  std::string machine = {};  ///< distinguishes hosts of the same name
  int process = 0;           ///< its pid; 0: not started yet
  int64_t step = 0;
  int64_t replicas = 0;                      ///< the run's replicas; 0: not known yet
  int64_t snapshot_step = -1;                ///< -1: none yet
  double snapshot_seconds = 0.0;             ///< duration of writing the last one; 0: none yet
  std::string phase = {};                    ///< "training"; empty: not known
  bool has_ended = false;                    ///< the fields below are valid once it is true
  Ending ending = {};                        ///< how it ended
  bool was_ended = false;                    ///< its keeper killed it, because the attempt was over
  bool is_lost = false;                      ///< its keeper is gone, so its end is unknown
  double stuck_seconds = 0.0;                ///< not 0: killed after this time without a heartbeat
  bool was_stopped = false;                  ///< SIGSTOP had stopped it when it was killed
  std::string lack_of_memory = {};           ///< why the kernel killed it; empty: not for lack of memory
  bool computed_wrong = false;               ///< an audit has found that its host computes wrong
  std::string failure = {};                  ///< the message of its failure; empty if there was none
  std::vector<std::string> last_lines = {};  ///< the last lines of its stderr
  std::string log_file = {};                 ///< the absolute path of its log; empty: none
  std::string stacks = {};                   ///< the file with its stacks, before it was ended; empty: none
  std::string lost_output = {};              ///< why its log files lack output; empty: they have all
  /// Empty: not known. Sequence 0: it has begun none.
  std::optional<FlightRecord> last_collective = {};
};

/// A keeper's instructions. The supervisor sends them once the keeper has connected.
struct RankPlan {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string folder;  ///< for heartbeat and flight record; made if it does not exist
  RankLogs logs = {};
};

/// Messages between a keeper and its supervisor, as JSON. Parsing throws Error if the text is not a message.
std::string to_json(const RankReport& report);
std::string to_json(const RankPlan& plan);
RankReport report_from_json(const std::string& text);
RankPlan plan_from_json(const std::string& text);

/// Other messages between a keeper and its supervisor.
constexpr const char* stop_message = "stop";        ///< to a keeper: the rank is to write a snapshot and exit
constexpr const char* end_message = "end";          ///< to a keeper: kill the rank, report and exit
constexpr const char* hold_message = "hold";        ///< to a keeper: keep the rank's output back
constexpr const char* release_message = "release";  ///< to a keeper: pass the rank's output on again
constexpr const char* asked_message = "asked";      ///< from a keeper: it received SIGUSR1, a request to stop

/// Returns the last lines of a text as a terminal shows them: a redrawn line as it was drawn last.
std::vector<std::string> last_shown_lines(const std::string& text, size_t most);

}  // namespace lockstep
