// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/elastic/launch_options.h"
#include "lockstep/elastic/messages.h"
#include "lockstep/elastic/nodes.h"
#include "lockstep/net/channel.h"
#include "lockstep/net/listener.h"

namespace lockstep {

/// Node 0's side of a run on several nodes. The lockrun of every other node joins here and stays connected.
/// After six seconds of silence a node is lost.
class Rendezvous : public Nodes {
 public:
  /// Starts to listen. Throws UserError if the endpoint cannot be used.
  explicit Rendezvous(const NodeOptions& options);
  ~Rendezvous() override;

  std::optional<JobLayout> gather(double seconds) override;
  int events() const override { return event_signal_.get(); }
  std::optional<NodeEvent> next_event() override;
  bool leave_out(const JobLayout::Host& host) override;
  void start_hosts(const std::string& endpoint, int nodes) override;
  void end_generation() override;
  void finish(int exit_code) override;
  const Secret& secret() const override { return secret_; }
  /// Returns the address and port at which the other nodes join.
  std::string endpoint() const { return listener_.endpoint(); }

 private:
  /// A node that has joined.
  struct Member {
    NodeFacts facts;
    std::unique_ptr<Channel> channel;
    Clock::time_point heard = Clock::now();
    int place = 0;  ///< index in the attempt; 0: it takes no part
    bool generation_ended = true;
    std::string lost = {};  ///< the reason, once the node is lost
  };
  /// A connection that has not sent its first message yet.
  struct Newcomer {
    std::unique_ptr<Channel> channel;
    Clock::time_point since = Clock::now();
  };
  void serve();
  void wait_for_something();
  void attend();
  void hear_newcomers();
  void hear_members();
  void welcome(std::unique_ptr<Channel> channel, NodeFacts facts);
  std::string objection(NodeFacts& facts, const std::string& seen_at, int& code);
  void hear(Member& member, const NodeMessage& message);
  void send(Member& member, const NodeMessage& message);
  void send_heartbeats();
  void bury_the_lost();
  void notify(NodeEvent event);
  bool is_left_out(const Member& member) const { return left_out_.contains(member.facts.process); }
  /// Returns the number of nodes that an attempt can use, node 0 included.
  int usable_nodes() const;
  Member* member_of(int node_rank);
  std::string missing();
  JobLayout placement();

  NodeOptions options_;
  Secret secret_;
  std::string address_;  ///< this host's address for nodes and keepers
  Listener listener_;
  Descriptor event_signal_;
  Descriptor wake_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Member> members_;
  std::set<std::string> left_out_;  ///< NodeFacts::process of nodes that take part in no attempt
  std::list<Newcomer> newcomers_;   ///< used by the thread only
  std::deque<NodeEvent> events_;
  std::optional<int> finish_code_;  ///< set once the run is over
  bool is_running_ = false;         ///< an attempt is running
  bool leaving_ = false;
  Clock::time_point last_change_ = Clock::now();  ///< when a node last joined or was lost
  Clock::time_point last_beat_{};
  std::optional<Clock::time_point> gathering_since_;
  Clock::time_point last_word_{};  ///< when gather() last logged the missing nodes
  std::thread thread_;
};

}  // namespace lockstep
