// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <numeric>

#include "core/file.h"
#include "core/log.h"
#include "nn/gradient_clip.h"
#include "nn/learning_rate.h"
#include "tensor/autograd.h"
#include "tensor/create.h"
#include "train/metrics.h"
#include "train/parameters_hash.h"
#include "train/processor_peak.h"
#include "train/program.h"
#include "train/progress.h"
#include "train/resume.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// One run, from start to end, on one rank.
class Run {
 public:
  Run(const Config& config, const World& world, const TrainingTask& task)
      : config_(config),
        world_(world),
        task_(task),
        threads_(config.train.threads ? static_cast<int>(config.train.threads) : world.share_of_cores()),
        data_parallel_(task.parameters, world,
                       {.replicas = static_cast<int>(config.dist.replicas),
                        .accumulate = static_cast<int>(config.train.accumulate),
                        .reduction = config.dist.reduction == "tree" ? Reduction::tree : Reduction::native,
                        .bucket_bytes = static_cast<int64_t>(config.dist.bucket_mib * 1048576.0),
                        .overlap = world.has_spare_core(threads_)}),
        optimizer_(task.make_optimizer(task.parameters)),
        loader_(task.training_data, {.replicas = config.dist.replicas,
                                     .first_replica = data_parallel_.replicas().begin,
                                     .end_replica = data_parallel_.replicas().end,
                                     .batch_size = config.train.batch_size,
                                     .seed = static_cast<uint64_t>(config.train.seed),
                                     .shuffle = task.shuffle,
                                     .whole_batches = config.train.accumulate > 1}),
        total_steps_(config.train.steps ? config.train.steps
                                        : config.train.epochs * loader_.steps_per_epoch()),
        schedule_{.peak = config.train.learning_rate,
                  .floor = config.train.min_lr,
                  .warmup_steps = config.train.warmup_steps,
                  .decay_steps = total_steps_},
        peak_flops_(measure_peak_flops() * threads_ * world.size()) {}

  int operator()();

 private:
  void resume();
  void describe() const;
  StepMetrics step(int64_t index);
  void backward(const Batch& batch, int64_t index);
  void observe(StepMetrics& metrics, Progress* progress);
  Snapshot snapshot(int64_t step) const;
  void save(int64_t step);
  bool is_due(int64_t step, int64_t every) const {
    return step == total_steps_ || (every > 0 && step % every == 0);
  }

  const Config& config_;
  const World& world_;
  const TrainingTask& task_;
  int threads_;
  DataParallel data_parallel_;
  std::unique_ptr<Optimizer> optimizer_;
  Loader loader_;
  int64_t total_steps_;
  CosineSchedule schedule_;
  double peak_flops_;
  int64_t first_step_ = 0;
  std::optional<double> best_validation_loss_;
};

int Run::operator()() {
  resume();
  const bool is_first = world_.is_first();
  std::unique_ptr<MetricsWriter> writer;
  std::unique_ptr<Progress> progress;
  if (is_first) {
    describe();
    writer = std::make_unique<MetricsWriter>(config_.log.dir + "/metrics.jsonl", first_step_);
    progress = std::make_unique<Progress>(total_steps_, first_step_, config_.log.every_steps, std::cerr,
                                          Display::of_stderr());
  }
  loader_.seek(first_step_);
  for (int64_t index = first_step_; index < total_steps_; ++index) {
    StepMetrics metrics = step(index);
    observe(metrics, progress.get());
    if (writer) writer->write(metrics);
    if (!is_due(metrics.step, config_.snapshot.every_steps)) continue;
    // A snapshot must never be ahead of the lines it builds on.
    if (writer) writer->sync();
    save(metrics.step);
  }
  const std::string hash = hash_text(parameters_hash(task_.parameters));
  require_equal_on_all_ranks(world_.communicator(), "the trained parameters", hash);
  if (writer) writer->finish(parameters_hash(task_.parameters));
  progress.reset();
  if (is_first)
    log_info(concat("done: ", total_steps_, " steps, parameters ", hash, ", results in ", config_.log.dir));
  return 0;
}

/// Loads what there is to go on from. A run that has ended has no step left, but its last line may be
/// missing.
void Run::resume() {
  const std::optional<Snapshot> found = find_snapshot_to_resume(config_, world_, task_.artifacts);
  if (!found) return;
  restore(*found, task_.parameters, *optimizer_);
  first_step_ = found->step;
  best_validation_loss_ = found->best_validation_loss;
  if (found->is_finished && world_.is_first())
    log_info(concat("this run is finished: ", found->step, " steps are in ", config_.snapshot.path));
}

/// Nothing is said or overwritten before the run is accepted, so that a refusal is the first thing a user
/// reads and the files of an earlier run stay.
void Run::describe() const {
  log_info(concat(config_.dist.replicas, config_.dist.replicas == 1 ? " replica on " : " replicas on ",
                  world_.size(), world_.size() == 1 ? " CPU rank, " : " CPU ranks, ", threads_,
                  threads_ == 1 ? " thread" : " threads", " each (", instruction_set(), ")"));
  if (!task_.description.empty()) log_info(task_.description);
  log_info(concat("memory: ", data_parallel_.gradient_sets(), " gradient buffers of ",
                  count_parameters(task_.parameters) >> 18, " MiB a rank"));
  try {
    write_file(config_.log.dir + "/config.ini", to_ini(config_));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training goes on"));
  }
}

StepMetrics Run::step(int64_t index) {
  const auto begin = Clock::now();
  const Step step = loader_.next();
  const double data_wait = seconds_since(begin);
  if (task_.on_epoch && index % loader_.steps_per_epoch() == 0)
    task_.on_epoch(step.epoch, step.batches.front().samples, loader_.steps_per_epoch());
  int64_t samples = 0;
  for (const Batch& batch : step.batches) backward(batch, index);
  const float loss = data_parallel_.wait();
  const double norm = gradient_norm(task_.parameters);
  expect(std::isfinite(loss) && std::isfinite(norm), "step ", index + 1, ": the loss is ", loss,
         " and the gradient norm ", norm, "; lower train.learning_rate, or set train.grad_clip");
  const double learning_rate = schedule_.at(index);
  optimizer_->step(learning_rate, clip_factor(norm, config_.train.grad_clip));

  for (const Batch& batch : step.batches) samples += batch.samples;
  const double seconds = seconds_since(begin);
  // Every replica has the same number of samples, so this rank knows the whole step.
  const int64_t samples_of_replica = samples / static_cast<int64_t>(step.batches.size());
  const auto tokens =
      static_cast<double>(samples_of_replica * config_.dist.replicas * task_.tokens_per_sample);
  return {.step = index + 1,
          .loss = loss,
          .learning_rate = learning_rate,
          .gradient_norm = norm,
          .tokens_per_second = tokens / seconds,
          .step_ms = seconds * 1e3,
          .exposed_communication_ms = data_parallel_.exposed_seconds() * 1e3,
          .data_wait_ms = data_wait * 1e3,
          .model_flops_utilization = tokens * task_.flops_per_token / seconds / peak_flops_,
          .memory_mib = static_cast<double>(memory_table().back().peak_bytes) / 1048576.0};
}

void Run::backward(const Batch& batch, int64_t index) {
  const int64_t micro_samples = batch.samples / config_.train.accumulate;
  for (int64_t micro = 0; micro < config_.train.accumulate; ++micro) {
    const int64_t first = micro * micro_samples;
    const Context context{.training = true,
                          .seed = static_cast<uint64_t>(config_.train.seed),
                          .step = static_cast<uint32_t>(index),
                          .sample = static_cast<uint32_t>(batch.first_sample + first)};
    const Tensor loss = [&] {
      const MemoryScope scope("activations");
      return task_.loss(batch.inputs.slice(first, first + micro_samples),
                        batch.targets.slice(first, first + micro_samples), context);
    }();
    data_parallel_.backward(loss);
  }
}

/// Evaluates and writes text where that is due, and tells the progress.
void Run::observe(StepMetrics& metrics, Progress* progress) {
  if (progress) progress->update(metrics.step, metrics.loss, metrics.tokens_per_second);
  if (task_.validation_data && is_due(metrics.step, config_.train.eval_every)) {
    const double loss = evaluate(world_, task_, *task_.validation_data, config_.train.batch_size);
    metrics.validation_loss = loss;
    const bool is_best = !best_validation_loss_ || loss < *best_validation_loss_;
    if (is_best) best_validation_loss_ = loss;
    if (progress)
      progress->print(
          concat("step ", metrics.step, ": validation loss ", loss, is_best ? " (best so far)" : ""));
    if (is_best && world_.is_first() && !config_.snapshot.path.empty()) {
      try {
        SnapshotStore(config_.snapshot.path, config_.snapshot.keep).save_best(snapshot(metrics.step));
      } catch (const Error& problem) {
        log_error(concat(problem.what(), "; training goes on"));
      }
    }
  }
  // The last step always shows what the model has learnt.
  const bool writes =
      task_.sample_text && config_.train.sample_every > 0 && is_due(metrics.step, config_.train.sample_every);
  if (progress && writes) progress->print(task_.sample_text());
}

Snapshot Run::snapshot(int64_t step) const {
  return {.step = step,
          .optimizer_steps = optimizer_->steps_taken(),
          .is_finished = step == total_steps_,
          .best_validation_loss = best_validation_loss_,
          .configuration = to_ini(config_),
          .artifacts = task_.artifacts,
          .model = task_.parameters,
          .optimizer = optimizer_->state()};
}

void Run::save(int64_t step) {
  if (config_.snapshot.path.empty() || !world_.is_first()) return;
  try {
    SnapshotStore(config_.snapshot.path, config_.snapshot.keep).save(snapshot(step));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training goes on"));
  }
}

}  // namespace

int train(Config config, const World& world, const TrainingTask& task) {
  // Whoever made the configuration, it is checked and settled as one from a file.
  config = config_from_ini(to_ini(config), "the configuration");
  settle_replicas(config, world.size());
  world.communicator().set_timeout(config.dist.timeout_s);
  require_same_configuration(config, world);
  std::string artifacts;
  for (const auto& [name, artifact] : task.artifacts)
    artifacts += concat(name, " = ", hash_text(hash_of(artifact)), "\n");
  require_equal_on_all_ranks(world.communicator(), "the data", artifacts);
  std::error_code problem;
  std::filesystem::create_directories(config.log.dir, problem);
  require(!problem, "log.dir: ", config.log.dir, " cannot be made: ", problem.message());
  try {
    world.communicator().record_flights_in(config.log.dir);
  } catch (const Error& failure) {
    log_warning(concat(failure.what(), "; it is kept in memory only"));
  }
  return Run(config, world, task)();
}

double evaluate(const World& world, const TrainingTask& task, const Dataset& data, int64_t batch_size) {
  const NoGrad no_grad;
  const int64_t batches = (data.size() + batch_size - 1) / batch_size;
  const int64_t most = (batches + world.size() - 1) / world.size();
  const int64_t begin = std::min(batches, most * world.rank());
  const int64_t end = std::min(batches, begin + most);
  std::vector<double> sums(static_cast<size_t>(most), 0.0);
  for (int64_t batch = begin; batch < end; ++batch) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(batch_size, data.size() - batch * batch_size)));
    std::iota(indices.begin(), indices.end(), batch * batch_size);
    const Batch samples = collect(data, indices, current_stream());
    const double loss = item(task.loss(samples.inputs, samples.targets, {}));
    sums[static_cast<size_t>(batch - begin)] = loss * static_cast<double>(samples.samples);
  }
  std::vector<double> all(sums.size() * static_cast<size_t>(world.size()));
  world.communicator().all_gather(sums.data(), most * 8, all.data());
  double total = 0.0;
  for (int64_t batch = 0; batch < batches; ++batch) total += all[static_cast<size_t>(batch)];
  return total / static_cast<double>(data.size());
}

}  // namespace lockstep
