// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/replay_step.h"

#include <map>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/tensor/create.h"
#include "lockstep/train/run_log.h"

namespace lockstep {

bool StepReplay::is_equal() const {
  if (recorded.step == 0) return true;
  return replayed.loss_bits() == recorded.loss_bits &&
         same_number(replayed.result.gradient_norm, recorded.gradient_norm);
}

void require_fit(const RecordedRun& run, const ReplayOptions& options) {
  const auto number = [&run](const char* key) { return number_in<int64_t>(run.settings[key]).value_or(1); };
  const int64_t step = options.step, replicas = number("dist.replicas");
  run.require_step(step, true);
  require(options.replica < replicas, "--replica ", options.replica, ": the run has the replicas 0 to ",
          replicas - 1);
  require(options.micro_batch < number("train.accumulate"), "--micro-batch ", options.micro_batch,
          ": a replica has the micro-batches 0 to ", number("train.accumulate") - 1);
  if (options.from_start || step == 1 || run.snapshot_before(step - 1)) return;
  const std::map<int64_t, StoredSnapshot> all = run.read_snapshots();
  const std::string there =
      all.empty() ? "the run has none" : concat("the oldest is that of step ", all.begin()->first);
  throw UserError(concat("step ", step, " needs a snapshot of an earlier step, and ", there,
                         ": --from-start computes ", counted(step - 1, "step"),
                         " again from the initial values"));
}

ReplicaTrace trace_replica(MicroBatchReplay& model, const std::vector<MicroBatchInput>& inputs,
                           bool keeps_tensors) {
  ReplicaTrace replica{.inputs = inputs};
  for (const MicroBatchInput& input : inputs) {
    replica.traces.push_back(model.run(input, keeps_tensors));
    const MicroBatchTrace& trace = replica.traces.back();
    // As StepSummary adds them: each share is rounded, from left to right.
    const float share = trace.loss * static_cast<float>(1.0 / static_cast<double>(inputs.size()));
    replica.loss = replica.traces.size() == 1 ? share : replica.loss + share;
    for (size_t p = 0; p < trace.parameters.size(); ++p) {
      const TracedParameter& parameter = trace.parameters[p];
      if (replica.gradients.size() == p) {
        replica.gradients.push_back({parameter.name, empty_like(parameter.gradient)});
        copy(parameter.gradient, replica.gradients[p].tensor);
        continue;
      }
      const View sum = replica.gradients[p].tensor.view();
      launch(cpu_stream(), Add{.a = sum, .b = parameter.gradient.view(), .y = sum});
    }
  }
  return replica;
}

namespace {

/// Returns the inputs of each replica to trace, or of one of its micro-batches.
std::vector<std::vector<MicroBatchInput>> chosen(const std::vector<MicroBatchInput>& all,
                                                 const ReplayOptions& options) {
  std::vector<std::vector<MicroBatchInput>> replicas;
  for (const MicroBatchInput& input : all) {
    const int64_t replica = input.batch.replica;
    if (options.replica >= 0 && replica != options.replica) continue;
    if (options.micro_batch >= 0 && input.index != options.micro_batch) continue;
    if (replicas.empty() || replicas.back()[0].batch.replica != replica) replicas.emplace_back();
    replicas.back().push_back(input);
  }
  return replicas;
}

}  // namespace

StepReplay replay_step(const RecordedRun& run, const RunTasks& tasks, const World& world,
                       const ReplayOptions& options) {
  ReplayedRun replayed(run, tasks, world);
  replayed.load(options.step - 1);
  const int64_t began_at = replayed.steps_done();
  replayed.go_to(options.step - 1);
  MicroBatchReplay model(tasks);
  model.load(replayed.space());
  const RecordedStep* recorded = run.step(options.step);
  StepReplay step{.run = run.folder,
                  .recorded = recorded ? *recorded : RecordedStep(),
                  .replayed = {},
                  .hint = scope_hint(run.start_of(options.step), scope_of_bits(tasks.job(), world)),
                  .began_at = began_at,
                  .traced = {},
                  .before = model.values(),
                  .after = {}};
  for (const std::vector<MicroBatchInput>& inputs : chosen(replayed.next_inputs(), options))
    step.traced.push_back(trace_replica(model, inputs, options.keeps_tensors));
  step.replayed = replayed.next();
  model.load(replayed.space());
  step.after = model.values();
  return step;
}

}  // namespace lockstep
