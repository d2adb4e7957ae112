// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>

#include "lockstep/core/clock.h"
#include "lockstep/core/process.h"
#include "lockstep/elastic/launch_options.h"
#include "lockstep/elastic/launchers.h"
#include "lockstep/elastic/nodes.h"
#include "lockstep/elastic/root_cause.h"
#include "lockstep/elastic/stop_request.h"
#include "lockstep/hosting/host_links.h"
#include "lockstep/net/channel.h"
#include "lockstep/net/listener.h"
#include "lockstep/program/private_folder.h"

namespace lockstep {

/// One start of all ranks of a run, until all have ended.
class Attempt {
 public:
  enum class Outcome { done, stopped, left_early, failed };

  /// Counts of earlier starts of the run.
  struct Starts {
    int all = 0;
    int begun = 0;  ///< starts in which a rank began its work; only these leave snapshots
  };

  Attempt(const LaunchOptions& options, const JobLayout& placement, Launcher launcher, Nodes& nodes,
          StopRequest& request, Starts earlier);

  /// Starts the ranks and watches them until all have exited. If one fails, ends all of them. A rank without
  /// a launcher writes to lockrun's own output.
  Outcome run(const RankOutput& output);
  /// Returns the facts about the failure of this attempt.
  AttemptFailure failure() const;
  /// Returns why output of a rank is lost; empty: none is.
  std::string lost_output() const;
  /// True if the attempt failed after lockrun had been asked to stop.
  bool failed_while_asked() const { return failed_while_asked_; }
  /// True once a rank has reported a heartbeat.
  bool has_begun() const;
  /// The number of replicas, as ranks have reported it; 0: not reported yet.
  int64_t replicas() const { return most(&RankReport::replicas); }
  /// The step of the newest snapshot that a rank has reported; -1: none.
  int64_t snapshot_step() const { return most(&RankReport::snapshot_step); }

 private:
  /// The connection to a rank's keeper.
  struct Keeper {
    std::unique_ptr<Channel> channel;
    int rank = -1;  ///< -1: not reported yet
    Clock::time_point heard = Clock::now();
  };

  void start(const RankOutput& output);
  void wait(double seconds);
  void attend();
  void hear_nodes();
  void hear(Keeper& keeper);
  void hear(Keeper& keeper, const std::string& message);
  void lose(Keeper& keeper);
  void look_at_launcher();
  /// Fails if something has stopped the launcher: its ranks would wait for it at their end.
  void look_for_a_stop();
  void look_at_deadlines();
  /// Seconds from the request to stop until the remaining ranks are killed.
  double grace_seconds() const;
  void pass_request_on();
  /// Holds the output of the ranks while the readers of lockrun's output are slow.
  void hold_output(bool is_held);
  void fail(const std::string& other_cause);
  void send_to_keepers(const std::string& message);
  std::string plan(const RankReport& hello) const;
  std::string missing_ranks() const;
  /// Returns the highest value of a field in all reports; without reports the field's default.
  int64_t most(int64_t RankReport::*field) const;
  bool all_started() const;
  bool all_have_left() const;
  /// Returns true if each rank has left or waits in MPI_Finalize.
  bool all_are_leaving() const;
  /// Returns the last report of a keeper's rank; null if there is none or the rank has ended.
  const RankReport* running(const Keeper& keeper) const;
  bool is_over() const;
  void end(const RankOutput& output);

  const LaunchOptions& options_;
  JobLayout placement_;
  Nodes& nodes_;
  StopRequest& request_;
  Starts earlier_;
  Launcher kind_;
  Listener listener_;
  AttemptFolders folders_;
  std::optional<HostLinks> hosts_;  ///< set if the launcher is pmix
  std::optional<Process> launcher_;
  std::list<Keeper> keepers_;
  std::map<int, RankReport> reports_;
  std::vector<int> ended_ranks_;  ///< in the order in which they ended
  std::string other_cause_;
  std::optional<Ending> launcher_ending_;
  std::optional<Clock::time_point> failed_;
  std::optional<Clock::time_point> first_left_;  ///< when a rank left with 75
  std::optional<Clock::time_point> leaving_;     ///< since when all_are_leaving()
  std::optional<Clock::time_point> stopped_;     ///< since when the launcher is stopped
  bool request_passed_on_ = false;
  bool is_output_held_ = false;
  bool failed_while_asked_ = false;
  Clock::time_point started_ = Clock::now();
};

}  // namespace lockstep
