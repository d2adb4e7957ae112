// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/replay/micro_batch.h"
#include "lockstep/replay/recorded_run.h"
#include "lockstep/replay/replayed_run.h"
#include "lockstep/replay/run_tasks.h"

namespace lockstep {

/// The work of one replica in a step, or of one of its micro-batches.
struct ReplicaTrace {
  std::vector<MicroBatchInput> inputs = {};  ///< in order
  std::vector<MicroBatchTrace> traces = {};  ///< of the inputs
  float loss = 0.0f;                         ///< the mean of the micro-batches' losses
  /// The sum of the micro-batches' gradients, on the CPU, by parameter. For all micro-batches of a replica
  /// these are the bits that enter the tree of additions. They contain the loss scale.
  std::vector<NamedTensor> gradients = {};
};

/// A step of a run that was computed again, and replicas of it in detail.
struct StepReplay {
  std::string run;                   ///< its folder
  RecordedStep recorded;             ///< as metrics.jsonl has it; its step is 0 if it has none
  ReplayedStep replayed;             ///< all replicas together
  std::string hint = {};             ///< scope_hint()
  int64_t began_at = 0;              ///< steps of the snapshot that it began with; 0: the initial values
  std::vector<ReplicaTrace> traced;  ///< in the order of the replicas
  std::vector<NamedTensor> before;   ///< values before the step, on the CPU
  std::vector<NamedTensor> after;    ///< values after it

  /// Returns whether the loss and the gradient norm have the bits of the record, if it has them.
  bool is_equal() const;
};

struct ReplayOptions {
  int64_t step = 0;
  int64_t replica = 0;         ///< -1: all
  int64_t micro_batch = -1;    ///< -1: all of the replica
  bool from_start = false;     ///< begin with the initial values if there is no snapshot
  bool keeps_tensors = false;  ///< keep the values of all that is computed
};

/// Throws UserError that names an option which does not fit the run, or if no snapshot is old enough and
/// ReplayOptions::from_start is not set.
void require_fit(const RecordedRun& run, const ReplayOptions& options);

/// Computes micro-batches of one replica, which are in order.
ReplicaTrace trace_replica(MicroBatchReplay& model, const std::vector<MicroBatchInput>& inputs,
                           bool keeps_tensors);

/// Computes a step of a run again. The options fit the run.
StepReplay replay_step(const RecordedRun& run, const RunTasks& tasks, const World& world,
                       const ReplayOptions& options);

}  // namespace lockstep
