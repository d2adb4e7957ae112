// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "lockstep/hosting/host_messages.h"

namespace lockstep {

/// Answers one request of the PMIx library, with a PMIx status and bytes. Call it once, on any thread except
/// inside a request.
using PmixAnswer = std::function<void(int status, const std::string& bytes)>;

/// Functions for requests that concern other nodes. The library's thread calls them, and they must return at
/// once.
struct PmixRequests {
  /// All local ranks among the participants are in a fence. `participants` is "" for all ranks, else "0,2".
  std::function<void(std::string participants, std::string bytes, PmixAnswer)> fence;
  /// A local rank needs what a rank of another node has published.
  std::function<void(int rank, PmixAnswer)> fetch;
};

/// A PMIx server in this process, for the local ranks of one attempt. It gives MPI_Init of Open MPI 4.1 and 5
/// what mpirun would give. A process can have one. Functions throw Error with PMIx's reason.
class PmixServer {
 public:
  /// Starts the library. `folder` is a private folder for its files; `host` is this node's name in the rank
  /// map.
  PmixServer(const std::string& folder, const std::string& host, PmixRequests requests);
  ~PmixServer();
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

  /// Announces the ranks. `folder` is a private folder for files of the ranks.
  void announce(const RankMap& map, const std::string& folder);
  /// Returns the variables by which a local rank finds this server.
  std::map<std::string, std::string> environment(int rank) const;
  /// Answers with what a local rank has published, as soon as it has.
  void read(int rank, PmixAnswer answer) const;

 private:
  std::string name_space_;
};

}  // namespace lockstep
