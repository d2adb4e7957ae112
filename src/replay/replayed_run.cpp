// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/replayed_run.h"

#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/dist/parameters_hash.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/parameters/learning_rate.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/matmul_tuning.h"

namespace lockstep {

std::string ReplayedStep::loss_bits() const { return RunChain::bits_text(result.loss); }

namespace {

Loader::Options options_of(const Job& job, const World& world, const TrainingTask& task) {
  Loader::Options options = loader_options(job, world, task);
  options.prefetch = false;  // the next step is read twice: as inputs, and to compute it
  return options;
}

/// Places the states of the optimizer before they are read. Returns the ranges that this rank keeps.
const Sharding& placed(TrainingEngine& engine) {
  engine.data_parallel.place_states(*engine.optimizer);
  return engine.data_parallel.setup.sharding;
}

}  // namespace

ReplayedRun::Parts::Parts(const RunTasks& tasks, const World& world)
    : task(tasks.make()),
      space(task->parameters(), SpaceOptions{.seed = tasks.job().seed(), .group = task->group_rule()}),
      engine(tasks.job(), world, *task, space),
      tensors(space, engine.optimizer.get(), placed(engine).masters, placed(engine).updates),
      loader(engine.data_parallel.loader(task->training_data(), options_of(tasks.job(), world, *task))),
      runner(tasks.job(), *task, engine, [] {}) {}

ReplayedRun::ReplayedRun(const RecordedRun& run, const RunTasks& tasks, const World& world)
    : run_(run),
      tasks_(tasks),
      world_(world),
      parts_(std::make_unique<Parts>(tasks, world)),
      learning_rate_(schedule_of(tasks.job().schedule)) {}

void ReplayedRun::begin() {
  if (steps_done_ > 0) {
    parts_.reset();
    parts_ = std::make_unique<Parts>(tasks_, world_);
  }
  steps_done_ = 0;
  if (!parts_->task->load_initial_values(world_, parts_->tensors)) return;
  parts_->space.values.allow_zeros();
  parts_->engine.data_parallel.values.refresh_copies();
}

void ReplayedRun::load(int64_t steps) {
  const auto snapshot = run_.snapshot_before(steps);
  snapshot ? load(*snapshot) : begin();
}

void ReplayedRun::load(const StoredSnapshot& snapshot) {
  const Snapshot& state = snapshot.state();
  restore(snapshot, world_, parts_->tensors);
  parts_->space.values.allow_zeros();
  parts_->engine.data_parallel.values.refresh_copies();
  parts_->engine.optimizer->set_steps_taken(state.optimizer_steps);
  if (parts_->engine.scaler && state.grad_scale) parts_->engine.scaler->set_state(*state.grad_scale);
  choose_matmul_plans(tasks_.job(), world_, *parts_->task, state.matmul_plans);
  steps_done_ = state.step;
}

std::vector<MicroBatchInput> ReplayedRun::next_inputs() {
  parts_->loader.seek(steps_done_);
  const Step step = parts_->loader.next();
  const std::optional<GradScale> scale = grad_scale();
  std::vector<MicroBatchInput> inputs;
  const std::vector<MicroBatch>& slices = parts_->engine.data_parallel.setup.micro_batches;
  for (size_t i = 0; i < slices.size(); ++i)
    inputs.push_back({.batch = step.batches[i],
                      .index = slices[i].index,
                      .step = steps_done_ + 1,
                      .epoch = step.epoch,
                      .inverse_count = step.inverse_count,
                      .loss_scale = scale ? std::optional(scale->scale) : std::nullopt});
  return inputs;
}

ReplayedStep ReplayedRun::next() {
  constexpr double seconds_between_messages = 10.0;
  if (seconds_since(logged_) > seconds_between_messages) {
    log_info(
        concat(steps_done_, " of the ", run_.last_step(), " steps of ", run_.folder, " are computed again"));
    logged_ = Clock::now();
  }
  parts_->loader.seek(steps_done_);
  const double learning_rate = learning_rate_(steps_done_);
  parts_->runner.start(parts_->loader.next(), learning_rate);
  return {.step = ++steps_done_, .result = parts_->runner.collect(), .learning_rate = learning_rate};
}

double ReplayedRun::validate() {
  const auto data = parts_->task->validation_data();
  require(data != nullptr, run_.folder, " has validation losses, but no validation data");
  const auto loss =
      evaluate(world_, parts_->engine.data_parallel, *parts_->task, *data, tasks_.job().micro_batch());
  require(loss.has_value(), "the validation was stopped on request");
  return *loss;
}

uint64_t ReplayedRun::hash() const { return parameters_hash(parts_->space, parts_->engine.data_parallel); }

}  // namespace lockstep
