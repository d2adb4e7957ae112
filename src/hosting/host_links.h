// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "hosting/fences.h"
#include "hosting/host_messages.h"
#include "net/channel.h"

namespace lockstep {

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
