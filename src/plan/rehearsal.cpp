// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/rehearsal.h"

#include <algorithm>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/data/sampler.h"
#include "lockstep/kernels/elementary.h"
#include "lockstep/movement/movement.h"
#include "lockstep/plan/memory_plan.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/train/step_runner.h"

namespace lockstep {
namespace {

/// The most rounds in which a sharded step is rehearsed.
constexpr int most_rounds = 8;

int64_t samples_of_step(const Job& job, const Dataset& data) {
  const int64_t replicas = std::max<int64_t>(job.dist.replicas, 1);
  return std::min(job.batches.batch_size, (data.size() + replicas - 1) / replicas);
}

/// Returns the micro-batches of a rank's replicas, for this step and the next one. If they are many, their
/// memory is made in few pieces. A step takes the first rows of the first piece.
std::vector<Batch> dry_batches(const Job& job, const Dataset& data, int64_t replicas) {
  const MemoryScope scope("batches");
  const int64_t samples = samples_of_step(job, data) / job.batches.accumulate;
  const int64_t all = 2 * replicas * job.batches.accumulate, pieces = std::min<int64_t>(all, 64);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t rows = samples * ((all + pieces - 1) / pieces);
    batches.push_back({.inputs = make_batch_memory(data.input(), rows, current_stream()),
                       .targets = make_batch_memory(data.target(), rows, current_stream()),
                       .samples = samples});
  }
  return batches;
}

/// Rehearses a validation. A last batch of another size makes its own blocks, on the last rank.
void rehearse_validation(const Job& job, const TrainingTask& task) {
  if (!task.validation_data() || job.validation.eval_every < 0) return;
  const NoGrad no_grad;
  const MemoryScope scope("validation");
  const Dataset& data = *task.validation_data();
  const int64_t batch = job.micro_batch();
  for (const int64_t samples : {std::min(batch, data.size()), data.size() % batch})
    if (samples > 0)
      task.loss(make_batch_memory(data.input(), samples, current_stream()),
                make_batch_memory(data.target(), samples, current_stream()), {});
}

/// Returns the copy of everything that a snapshot writes while training continues, in one piece.
Tensor rehearse_snapshot(const Job& job, const ParameterSpace& space, const Optimizer& optimizer) {
  if (job.snapshot_place().empty()) return {};
  const MemoryScope scope("snapshot");
  int64_t elements = 0;
  for (const Parameter& parameter : space.layout.parameters()) {
    const bool has_states = parameter.place.begin < space.layout.trainable_elements();
    elements += parameter.place.size() * (1 + (has_states ? std::ssize(optimizer.state_names()) : 0));
  }
  return empty({elements}, space.layout.dtype(), cpu_stream());
}

/// Returns the run with few rounds and micro-batches. They show the memory that more of them need too.
Job shortened(const Job& job, bool is_sharded, int ranks) {
  Job few = job;
  if (is_sharded) {
    // More rounds only add partial sums.
    few.dist.replicas = std::min(std::max(job.dist.replicas, 1), most_rounds * ranks);
    few.batches.accumulate = std::min<int64_t>(job.batches.accumulate, 3);
    return few;
  }
  few.dist.replicas = 1;
  few.dist.shard = Shard::none;
  few.dist.group = 0;
  few.batches.accumulate = std::min<int64_t>(job.batches.accumulate, 2);
  few.dist.bucket_mib = 1e9;  // with one bucket, a large model takes no longer
  return few;
}

/// Returns the most bytes that the fold of a bucket reads in each slot of other ranks.
int64_t foreign_bytes(const ParameterSpace& space, const Sharding& sharding, double bucket_mib) {
  const BucketPlan buckets(space.layout, sharding, static_cast<int64_t>(bucket_mib * 1048576.0));
  const std::vector<int> one_each(sharding.updates.size(), 1);
  int64_t most = 0;
  for (const BucketPlan::Bucket& bucket : buckets.buckets)
    most = std::max(most, 4 * arriving_elements(bucket, one_each, 0));
  return most;
}

}  // namespace

Rehearsal rehearse(const Job& job, const PlannedRanks& place, const MakeTask& make) {
  const bool is_cut = job.dist.shard != Shard::none && place.ranks > 1;
  const bool is_sharded = is_cut || (job.dist.offload != Offload::none && gpu_of(current_stream()) >= 0);
  const int64_t all_replicas = std::max<int64_t>(job.dist.replicas, 1);
  const int64_t replicas = (all_replicas + place.ranks - 1) / place.ranks;
  const Job rehearsed = shortened(job, is_sharded, place.ranks);
  const auto others = std::make_shared<DryCommunicator>(0, place.ranks, place.ranks_of_host);
  const World world = is_sharded ? World(others) : World::alone();
  const DryRun dry;
  const std::shared_ptr<const TrainingTask> made = make(job);
  const TrainingTask& task = *made;
  const TaskFacts facts = task.facts();
  ParameterSpace space(task.parameters(), {.seed = job.seed(), .group = task.group_rule()});
  TrainingEngine engine(rehearsed, world, task, space);
  StepRunner runner(rehearsed, task, engine, [] {});
  const std::vector<Batch> batches = dry_batches(job, *task.training_data(), replicas);
  Batch batch = batches.front();
  batch.inputs = batch.inputs.slice(0, batch.samples);
  batch.targets = batch.targets.slice(0, batch.samples);
  const Step step{.inverse_count = 1.0,
                  .batches = std::vector<Batch>(engine.data_parallel.setup.micro_batches.size(), batch)};
  const int64_t samples = task.training_data()->size();
  // A shorter step, at the end of an epoch, needs no more than this one.
  runner.start(step, job.schedule.learning_rate);
  engine.data_parallel.together([&] { rehearse_validation(job, task); });
  if (is_sharded) engine.data_parallel.values.gather(0);  // for the hash of the parameters
  const Tensor snapshot = rehearse_snapshot(job, space, *engine.optimizer);
  runner.start(step, job.schedule.learning_rate);  // while the snapshot is being written
  if (facts.writes_samples && job.validation.sample_every > 0) {
    const MemoryScope scope("sample text");
    engine.data_parallel.together([&] { task.sample_text([] { return true; }); });
  }
  return {.memory = dry.peak(),
          .on_host = dry.host_peak(),
          .uses = dry.table(),
          .elements = space.layout.elements(),
          .trainable = space.layout.trainable_elements(),
          .states = static_cast<int64_t>(engine.optimizer->states().size()),
          .copy_bytes = space.copies() ? space.copies().memory().view().bytes() : 0,
          .order_bytes = facts.shuffle && samples <= most_permuted ? 4 * samples : 0,
          .is_sharded = is_sharded,
          .cuts_gradients = engine.data_parallel.setup.sharding.cuts_gradients(),
          .missing_levels = is_sharded ? math::log(static_cast<double>(all_replicas) /
                                                   static_cast<double>(rehearsed.dist.replicas)) /
                                             math::log(2.0)
                                       : 0.0,
          .slots = engine.data_parallel.setup.gradient_sets,
          .shared_bytes = others->shared_bytes(),
          .foreign_bytes =
              others->shared_bytes() > 0
                  ? foreign_bytes(space, engine.data_parallel.setup.sharding, rehearsed.dist.bucket_mib)
                  : 0};
}

}  // namespace lockstep
