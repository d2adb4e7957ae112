// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The environment variable with the run's secret, for its nodes, hosts and keepers.
constexpr const char* secret_variable = "LOCKRUN_SECRET";
/// The environment variables with private folders on this node, for its host and keepers: files of ranks, and
/// segments of shared memory.
constexpr const char* folder_variable = "LOCKRUN_FOLDER";
constexpr const char* shared_folder_variable = "LOCKRUN_SHARED_FOLDER";

/// The ranks of an attempt on all of its nodes, as MPI_Init gets to know them.
struct RankMap {
  struct Node {
    std::string host = {};  ///< the host's name
    std::vector<int> ranks = {};
  };

  std::string name_space = {};  ///< PMIx's name for the attempt; nobody can guess it
  std::vector<Node> nodes = {};
  int here = 0;  ///< index of the node that this map is sent to

  int size() const;
  const std::vector<int>& local_ranks() const { return nodes.at(static_cast<size_t>(here)).ranks; }
};

/// The first message of a lockrun_host on its connection to the supervisor; the index of its node follows.
constexpr std::string_view host_greeting = "host ";

/// A message between the supervisor and the lockrun_host of a node.
struct HostMessage {
  enum class Kind {
    map,     ///< supervisor: start the local ranks of `map`
    beat,    ///< host: a heartbeat
    fence,   ///< host: its ranks among `participants` are in a fence, with `data`
    fenced,  ///< supervisor: all participants are in the fence; `data` is that of all nodes
    fetch,  ///< host: a local rank needs what `rank` has published; supervisor: passed on to that rank's host
    fetched,  ///< host: the answer, with PMIx's `status`; supervisor: passed back
    end,      ///< supervisor: end
    count
  };

  Kind kind = Kind::beat;
  int node = 0;        ///< fetch, fetched: index of the node that asked
  int64_t number = 0;  ///< fetch, fetched: the request, counted by the node that asked
  int rank = 0;
  int status = 0;
  std::string participants = {};  ///< "" for all ranks, else their numbers: "0,2"
  std::string data = {};          ///< PMIx's bytes in hexadecimal digits
  RankMap map = {};

  std::string encode() const;
  /// Throws Error if it is not a message.
  static HostMessage decode(std::string_view text);
};

}  // namespace lockstep
