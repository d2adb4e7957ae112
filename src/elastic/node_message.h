// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

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

}  // namespace lockstep
