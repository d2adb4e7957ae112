// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// What a rank tells whoever watches it, in a file of one page that both map: it outlives whatever kills the
/// rank. The watcher makes the file and names it in LOCKSTEP_HEARTBEAT.
struct HeartbeatPage {
  std::atomic<uint64_t> beats{0};             ///< grows while the rank gets on
  std::atomic<int64_t> step{0};               ///< completed steps
  std::atomic<int64_t> replicas{0};           ///< of the run: it cannot use more ranks; 0: not known
  std::atomic<int64_t> snapshot_step{-1};     ///< of the newest snapshot that is whole; -1: none yet
  std::atomic<double> snapshot_seconds{0.0};  ///< what writing the last snapshot took; 0: none yet
  std::atomic<double> deadline_seconds{0.0};  ///< without a beat for so long, the rank is stuck; 0: not known
  char phase[32] = {};                        ///< what it is at: "training", "evaluation"
  char failure[960] = {};                     ///< why it ends; empty while all is well
};

/// The page of this process. Without LOCKSTEP_HEARTBEAT it is memory that nobody reads.
HeartbeatPage& heartbeat();

/// True if somebody watches this process, and ends the other ranks when this one fails.
bool is_supervised();

/// Says that the rank gets on, and with what (at most 31 characters).
void report_progress(const char* phase);

/// Says why the rank ends; the first reason stays.
void report_failure(const std::string& message);

/// How often whoever watches has started this run again (LOCKSTEP_RESTART_COUNT), or Slurm its job
/// (SLURM_RESTART_COUNT); 0 if nobody does.
int restart_count();

/// Makes the file of a page (`create`) or opens it. Throws Error naming the path.
std::shared_ptr<HeartbeatPage> map_heartbeat(const std::string& path, bool create);

}  // namespace lockstep
