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

ReplayedRun::ReplayedRun(const RecordedRun& run, const RunTasks& tasks, const World& world)
    : run_(run), tasks_(tasks), world_(world), learning_rate_(schedule_of(tasks.job().schedule)) {
  make();
}

/// Makes the model and what trains it, with initial values.
void ReplayedRun::make() {
  runner_.reset();
  loader_.reset();
  tensors_.reset();
  engine_.reset();
  space_.reset();
  const Job& job = tasks_.job();
  task_ = tasks_.make();
  space_ = std::make_unique<ParameterSpace>(task_->parameters(),
                                            SpaceOptions{.seed = job.seed(), .group = task_->group_rule()});
  engine_ = std::make_unique<TrainingEngine>(job, world_, *task_, *space_);
  DataParallel& data_parallel = engine_->data_parallel;
  data_parallel.place_states(*engine_->optimizer);
  tensors_ =
      std::make_unique<SpaceTensors>(*space_, engine_->optimizer.get(), data_parallel.setup.sharding.masters,
                                     data_parallel.setup.sharding.updates);
  Loader::Options options = loader_options(job, world_, *task_);
  options.prefetch = false;  // the next step is read twice: as inputs, and to compute it
  // A Loader cannot be moved.
  loader_ = std::unique_ptr<Loader>(new Loader(data_parallel.loader(task_->training_data(), options)));
  runner_ = std::make_unique<StepRunner>(job, *task_, *engine_, [] {});
  steps_done_ = 0;
}

void ReplayedRun::begin() {
  if (steps_done_ > 0) make();
  if (!task_->load_initial_values(world_, *tensors_)) return;
  space_->values.allow_zeros();
  engine_->data_parallel.values.refresh_copies();
}

void ReplayedRun::load(int64_t steps) {
  const auto snapshot = run_.snapshot_before(steps);
  snapshot ? load(*snapshot) : begin();
}

void ReplayedRun::load(const StoredSnapshot& snapshot) {
  const Snapshot& state = snapshot.state();
  restore(snapshot, world_, *tensors_);
  space_->values.allow_zeros();
  engine_->data_parallel.values.refresh_copies();
  engine_->optimizer->set_steps_taken(state.optimizer_steps);
  if (engine_->scaler && state.grad_scale) engine_->scaler->set_state(*state.grad_scale);
  choose_matmul_plans(tasks_.job(), world_, *task_, state.matmul_plans);
  steps_done_ = state.step;
}

std::vector<MicroBatchInput> ReplayedRun::next_inputs() {
  loader_->seek(steps_done_);
  const Step step = loader_->next();
  const std::optional<GradScale> scale = grad_scale();
  std::vector<MicroBatchInput> inputs;
  const std::vector<MicroBatch>& slices = engine_->data_parallel.setup.micro_batches;
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
  loader_->seek(steps_done_);
  const double learning_rate = learning_rate_(steps_done_);
  runner_->start(loader_->next(), learning_rate);
  return {.step = ++steps_done_, .result = runner_->collect(), .learning_rate = learning_rate};
}

double ReplayedRun::validate() {
  const auto data = task_->validation_data();
  require(data != nullptr, run_.folder, " has validation losses, but no validation data");
  const auto loss = evaluate(world_, engine_->data_parallel, *task_, *data, tasks_.job().micro_batch());
  require(loss.has_value(), "the validation was stopped on request");
  return *loss;
}

uint64_t ReplayedRun::hash() const { return parameters_hash(*space_, engine_->data_parallel); }

}  // namespace lockstep
