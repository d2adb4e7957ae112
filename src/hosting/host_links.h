// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/hosting/host_messages.h"
#include "lockstep/net/channel.h"

namespace lockstep {

/// Contributions of nodes to PMIx's fences, in which ranks exchange addresses. A fence is over when every
/// node that has one of its participants has contributed. Fences of different participants are independent.
class Fences {
 public:
  /// `map` must live as long as this object.
  explicit Fences(const RankMap& map) : map_(map) {}

  struct Completed {
    std::vector<int> nodes;
    std::string data;  ///< of these nodes, in this order
  };

  /// Adds a node's contribution. Returns the fence if it is over now. Throws Error if a participant is not a
  /// rank or the node has none of them.
  std::optional<Completed> add(int node, const std::string& participants, const std::string& data);

 private:
  std::vector<int> nodes_of(const std::string& participants) const;

  const RankMap& map_;
  /// For each set of participants, what each node has contributed to fences that are not over, oldest first.
  std::map<std::string, std::map<int, std::deque<std::string>>> waiting_;
};

/// The supervisor's connections to the lockrun_host of each node of an attempt. Hosts send their ranks'
/// fences and requests here, and here they are passed on.
class HostLinks {
 public:
  /// `nodes` are those of the attempt with their ranks.
  explicit HostLinks(std::vector<RankMap::Node> nodes);
  HostLinks(const HostLinks&) = delete;
  HostLinks& operator=(const HostLinks&) = delete;

  /// Takes a connection whose first message was `greeting`, and sends the ranks to start. Throws Error if no
  /// such host is expected.
  void add(std::unique_ptr<Channel> channel, const std::string& greeting);
  /// Handles messages. Returns why the attempt fails: a host is gone, silent or sent nonsense. Empty: it does
  /// not.
  std::string attend();
  /// Ends all hosts, and those that connect from now on.
  void end();
  /// Returns descriptors for poll().
  std::vector<int> descriptors() const;

 private:
  struct Link {
    std::unique_ptr<Channel> channel;
    Clock::time_point heard = Clock::now();
  };

  void obey(int node, HostMessage message);
  void send(int node, const HostMessage& message);
  std::string name_of(int node) const;

  RankMap map_;
  Fences fences_{map_};
  std::map<int, Link> links_;  ///< keyed by the node's index
  bool is_over_ = false;
};

}  // namespace lockstep
