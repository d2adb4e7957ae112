// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/job/job.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/snapshot/found_run.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/train/run.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Returns the scope of bits: the facts that decide a run's bits besides its semantic settings and its data.
/// They are the version of this program's arithmetic, and the GPU's model with cuBLASLt's version, or the CPU
/// and AMX if that multiplies. The number of ranks counts if MPI or NCCL adds. `train.device` and `train.amx`
/// must be in effect.
std::string scope_of_bits(const Job& job, const World& world);

/// Returns the chain of hashes of a run before its first step.
RunChain start_of_chain(const Job& job, const Artifacts& artifacts);

/// Logs a warning if `snapshot` was written in a scope other than `here`, the scope of the run that resumes.
void compare_scope(const Snapshot& snapshot, const std::string& here);

/// Logs the start of a run on rank 0, with its ranks, device, data, model, memory, steps and folder.
void log_start(const RunParts& run, const DataParallel& data_parallel, int64_t steps);

/// Logs the highest peak memory of a rank next to the plan; nothing without a plan. All ranks call it.
void log_memory(const World& world, double planned_bytes);

/// Logs the peaks of this rank's memory when they have grown, in its log file. Rank 0 also appends them to
/// the run's events. A rank that is killed leaves these lines.
class PeakMemoryLog {
 public:
  PeakMemoryLog(const World& world, const std::string& folder)
      : is_on_(world.is_first_in_process()), folder_(world.is_first() ? folder : "") {}
  void log(int64_t step);

 private:
  bool is_on_;
  std::string folder_;  ///< of the events; empty: none
  std::string logged_;
  std::map<std::string, std::string> recorded_;  ///< bytes by label
};

/// Logs the result of a complete run and the command that uses the model. `reason`: why it ended early.
/// `snapshots`: the folder or bucket of its snapshots; empty if there are none.
void log_end(const Job& job, const TaskFacts& task, int64_t steps, const std::string& hash,
             const std::string& snapshots, const std::string& reason = "");

/// Logs that a run ended after `step` on request, and whether it can be resumed from there.
void log_stop(const Job& job, int64_t step, bool is_in_validation, bool is_saved);

}  // namespace lockstep
