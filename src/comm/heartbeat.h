// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// The state that a rank reports to its supervisor, in a one-page file that both map. The file survives any
/// end of the rank. The supervisor creates it and names it in LOCKSTEP_HEARTBEAT.
struct HeartbeatPage {
  std::atomic<uint64_t> beats{0};             ///< grows while the rank makes progress
  std::atomic<int64_t> step{0};               ///< completed steps
  std::atomic<int64_t> replicas{0};           ///< the run's; it cannot use more ranks; 0: not known
  std::atomic<int64_t> snapshot_step{-1};     ///< step of the newest complete snapshot; -1: none yet
  std::atomic<double> snapshot_seconds{0.0};  ///< time to write the last snapshot; 0: none yet
  std::atomic<double> deadline_seconds{0.0};  ///< without a beat this long, the rank is stuck; 0: not known
  std::atomic<bool> computed_wrong{false};    ///< an audit has found that this rank computes wrong
  char phase[32] = {};                        ///< current activity: "training", "evaluation"
  char failure[960] = {};                     ///< why the rank ends; empty without a failure
  char log_file[512] = {};                    ///< the absolute path of the rank's log; empty: none
};

/// The phase of a rank that has finished its work and waits in MPI_Finalize for the others.
constexpr const char* leaving_phase = "leaving";

/// Returns the page of this process. Without LOCKSTEP_HEARTBEAT it is memory that no other process reads.
HeartbeatPage& heartbeat();

/// Returns true if a supervisor watches this process and ends the other ranks when this one fails.
bool is_supervised();

/// Marks the rank as alive in `phase` (at most 31 characters).
void report_progress(const char* phase);

/// Reports why the rank ends. The first reason is kept.
void report_failure(const std::string& message);

/// Names the rank's log, to which the supervisor appends the stacks of a rank that is stuck.
void report_log_file(const std::string& path);

/// Returns how often the supervisor has restarted this run (LOCKSTEP_RESTART_COUNT) or Slurm its job
/// (SLURM_RESTART_COUNT); 0 if neither is set.
int restart_count();

/// Creates the file of a page (`create`) or opens it. Throws Error naming the path.
std::shared_ptr<HeartbeatPage> map_heartbeat(const std::string& path, bool create);

}  // namespace lockstep
