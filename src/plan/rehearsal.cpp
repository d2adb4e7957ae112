// SPDX-License-Identifier: Apache-2.0
#include "plan/rehearsal.h"

#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/create.h"
#include "train/step_runner.h"

namespace lockstep {
namespace {

int64_t samples_of_step(const Config& config, const Dataset& data) {
  const int64_t replicas = std::max<int64_t>(config.dist.replicas, 1);
  return std::min(config.train.batch_size, (data.size() + replicas - 1) / replicas);
}

/// The batches of a rank's replicas: for a step, and for the next one.
std::vector<Batch> dry_batches(const Config& config, const Dataset& data, int64_t replicas) {
  const MemoryScope scope("batches");
  const int64_t samples = samples_of_step(config, data);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < 2 * replicas; ++i)
    batches.push_back({.inputs = make_batch_memory(data.input(), samples, current_stream()),
                       .targets = make_batch_memory(data.target(), samples, current_stream()),
                       .samples = samples});
  return batches;
}

Batch part_of(Batch batch, int64_t samples) {
  batch.samples = samples;
  batch.inputs = batch.inputs.slice(0, samples);
  batch.targets = batch.targets.slice(0, samples);
  return batch;
}

/// As much of a batch as two micro-batches are, which show what more of them need too.
Batch beginning(const Batch& batch, int64_t accumulate) {
  const int64_t parts = std::min<int64_t>(accumulate, 2);
  return part_of(batch, std::min(batch.samples, std::max<int64_t>(1, batch.samples / accumulate) * parts));
}

/// A last batch of other size makes blocks of its own, on the last rank.
void rehearse_validation(const Config& config, const TrainingTask& task) {
  if (!task.validation_data || config.train.eval_every < 0) return;
  const NoGrad no_grad;
  const MemoryScope scope("validation");
  const Dataset& data = *task.validation_data;
  const int64_t batch = config.train.batch_size / config.train.accumulate;
  for (const int64_t samples : {std::min(batch, data.size()), data.size() % batch})
    if (samples > 0)
      task.loss(make_batch_memory(data.input(), samples, current_stream()),
                make_batch_memory(data.target(), samples, current_stream()), {});
}

/// The samples of a replica's last batch in an epoch, if that is another size and the run comes to it; else
/// 0.
int64_t short_batch(const Config& config, const Dataset& data) {
  const int64_t replicas = std::max<int64_t>(config.dist.replicas, 1);
  const int64_t of_replica = (data.size() + replicas - 1) / replicas;
  const bool is_met = config.train.epochs > 0 || config.train.steps > of_replica / config.train.batch_size;
  return config.train.accumulate == 1 && is_met && of_replica > config.train.batch_size
             ? of_replica % config.train.batch_size
             : 0;
}

/// The copy that is written while training goes on, in one piece.
Tensor rehearse_snapshot(const Config& config, const ParameterSpace& space, const Optimizer& optimizer) {
  if (config.snapshot.path.empty()) return {};
  const MemoryScope scope("snapshot");
  int64_t elements = 0;
  for (const auto& tensors : {space.named(), optimizer.state()})
    for (const NamedTensor& one : tensors) elements += one.tensor.size();
  return empty({elements}, space.values().dtype(), cpu_stream());
}

}  // namespace

Rehearsal rehearse(const Config& config, int64_t ranks, const MakeTraining& make) {
  const int64_t replicas = (std::max<int64_t>(config.dist.replicas, 1) + ranks - 1) / ranks;
  Config alone = config;
  alone.dist.replicas = 1;
  alone.train.accumulate = std::min<int64_t>(config.train.accumulate, 2);
  alone.dist.bucket_mib = 1e9;  // one bucket takes no longer for a large model
  const World world = World::alone();
  const DryRun dry;
  const auto [model, task] = make(config);
  ParameterSpace space(task.parameters, task.group);
  space.set_precision(precision_of(config));
  TrainingEngine engine(alone, world, task, space);
  StepRunner runner(alone.train, task, engine, [] {});
  const std::vector<Batch> batches = dry_batches(config, *task.training_data, replicas);
  const Batch whole = beginning(batches.front(), config.train.accumulate);
  const int64_t last = short_batch(config, *task.training_data);
  runner.start({.batches = {last > 0 ? part_of(whole, last) : whole}}, config.train.learning_rate);
  rehearse_validation(config, task);
  const Tensor snapshot = rehearse_snapshot(config, space, *engine.optimizer);
  runner.start({.batches = {whole}}, config.train.learning_rate);  // while that is being written
  if (task.sample_text && config.train.sample_every > 0) {
    const MemoryScope scope("sample text");
    task.sample_text([] { return true; });
  }
  return {.memory = dry.peak(),
          .uses = dry.table(),
          .elements = space.elements(),
          .trainable = space.trainable_elements(),
          .states = static_cast<int64_t>(engine.optimizer->states().size()),
          .copy_bytes = space.copies() ? space.copies().view().bytes() : 0,
          .order_bytes = task.shuffle ? 4 * task.training_data->size() : 0};
}

}  // namespace lockstep
