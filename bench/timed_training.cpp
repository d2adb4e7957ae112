// SPDX-License-Identifier: Apache-2.0
#include "timed_training.h"

#include <chrono>
#include <numeric>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// A clock that adds the time since the last charge() to a phase.
class Stopwatch {
 public:
  void charge(double& seconds) {
    const auto now = Clock::now();
    seconds += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

}  // namespace

double whole(const PhaseSeconds& step) { return std::accumulate(step.begin(), step.end(), 0.0); }

TimedTraining::TimedTraining(const Job& job, const World& world, const TrainingTask& task, bool shares_memory)
    : job_(job),
      task_(task),
      space_(task.parameters(), {.seed = job.seed(), .group = task.group_rule()}),
      engine_(job, world, task, space_, shares_memory),
      loader_(engine_.data_parallel.loader(task.training_data(),
                                           {.batch_size = job.batches.batch_size, .seed = job.seed()})) {}

PhaseSeconds TimedTraining::step() {
  PhaseSeconds seconds{};
  Stopwatch watch;
  const Step step = loader_.next();
  watch.charge(seconds[data]);
  engine_.data_parallel.begin_step();
  for (const Batch& batch : step.batches) {
    const Context context{.training = true,
                          .seed = job_.seed(),
                          .step = static_cast<uint32_t>(step.index),
                          .sample = static_cast<uint32_t>(batch.first_sample),
                          .loss_scale = engine_.scaler ? engine_.scaler->scale() : Tensor()};
    const Tensor loss = task_.loss(batch.inputs, batch.targets, context);
    watch.charge(seconds[forward]);
    engine_.data_parallel.backward(loss);
    watch.charge(seconds[backward_pass]);
  }
  engine_.data_parallel.step(*engine_.optimizer, job_.schedule.learning_rate, job_.optimizer.grad_clip);
  watch.charge(seconds[update]);
  seconds[communication] = engine_.data_parallel.summary.exposed_seconds();
  seconds[update] -= seconds[communication];
  return seconds;
}

std::vector<PhaseSeconds> TimedTraining::steps(int count) {
  std::vector<PhaseSeconds> all;
  for (int i = 0; i < count; ++i) all.push_back(step());
  return all;
}

std::string workload_of(const Job& job) {
  const Settings settings = job_keys().settings_of(job);
  return concat(job.model.n_layer, "x", job.model.n_head, "x", job.model.n_embd, " block ",
                job.text.block_size, " replicas ", job.dist.replicas, " batch ", job.batches.batch_size,
                job.dist.reduction == Reduction::tree ? "" : " native",
                job.compute.precision == DType::f32 ? "" : " " + settings["train.precision"],
                job.compute.recompute == Recompute{} ? "" : " recompute " + settings["train.recompute"],
                job.dist.shard == Shard::none ? "" : " shard " + settings["dist.shard"]);
}

void take_benchmark_arguments(CommandLine& line, Arguments& arguments) {
  line.take_from(arguments.other, arguments.program);
  if (arguments.config_file.empty()) arguments.config_file = "shakespeare_cpu.ini";
  const std::string directory = "runs/" + arguments.program;
  const std::vector<Setting> own = {{"train.device", "cpu"},
                                    {"data.dataset", "random_tokens"},
                                    {"model.vocab_size", "65"},
                                    {"log.dir", directory},
                                    {"snapshot.path", directory + "/snapshots"}};
  arguments.overrides.insert(arguments.overrides.begin(), own.begin(), own.end());
}

}  // namespace lockstep
