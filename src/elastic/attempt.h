// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "core/process.h"
#include "elastic/launch_options.h"
#include "elastic/nodes.h"
#include "elastic/root_cause.h"
#include "elastic/stop_request.h"
#include "net/channel.h"
#include "net/listener.h"

namespace lockstep {

/// How the ranks of a run live from one start to their common end.
class Attempt {
 public:
  enum class Outcome { done, stopped, left_early, failed };

  /// How often the run was started before.
  struct Starts {
    int all = 0;
    int begun = 0;  ///< of them, those in which a rank began its work: only these leave something to resume
  };

  Attempt(const LaunchOptions& options, const JobLayout& placement, Launcher launcher, Nodes& nodes,
          StopRequest& request, Starts earlier);
  ~Attempt();

  /// Starts the ranks and watches them until all have left, or one has failed and all were ended.
  Outcome run();
  /// What made it fail.
  Failure failure() const;
  /// True if it failed after lockrun had been asked to stop.
  bool failed_while_asked() const { return failed_while_asked_; }
  /// True once a rank had a heartbeat.
  bool has_begun() const;
  /// As its ranks have settled them; 0: none got so far.
  int64_t replicas() const { return most(&RankReport::replicas); }
  /// Of the newest snapshot that a rank has told of; -1: none.
  int64_t snapshot_step() const { return most(&RankReport::snapshot_step); }

 private:
  /// The connection to a rank's keeper.
  struct Keeper {
    std::unique_ptr<Channel> channel;
    int rank = -1;  ///< -1: it has not said yet
    Clock::time_point heard = Clock::now();
  };

  void wait(double seconds);
  void attend();
  void hear_nodes();
  void hear(Keeper& keeper);
  void hear(Keeper& keeper, const std::string& message);
  void lose(Keeper& keeper);
  void look_at_launcher();
  void look_at_deadlines();
  /// From the request to stop until what still runs is ended.
  double grace_seconds() const;
  void pass_request_on();
  void fail(const std::string& other_cause);
  void send_to_keepers(const std::string& message);
  std::string plan(const RankReport& hello) const;
  std::string missing_ranks() const;
  /// Of what the reports say, or what a report says before it knows.
  int64_t most(int64_t RankReport::*field) const;
  bool all_started() const;
  bool all_have_left() const;
  bool is_over() const;
  void end();

  const LaunchOptions& options_;
  JobLayout placement_;
  Nodes& nodes_;
  StopRequest& request_;
  Starts earlier_;
  Launcher kind_;
  Listener listener_;
  std::string folder_;
  std::optional<Process> launcher_;
  std::list<Keeper> keepers_;
  std::map<int, RankReport> reports_;
  std::vector<int> ended_ranks_;  ///< in the order they ended
  std::string other_cause_;
  std::optional<Ending> launcher_ending_;
  std::optional<Clock::time_point> failed_;
  std::optional<Clock::time_point> first_left_;  ///< when a rank left with 75
  bool request_passed_on_ = false;
  bool failed_while_asked_ = false;
  Clock::time_point started_ = Clock::now();
};

}  // namespace lockstep
