// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <limits>
#include <numeric>
#include <utility>

#include "core/clock.h"
#include "core/exit_code.h"
#include "core/file.h"
#include "core/gpu.h"
#include "core/heartbeat.h"
#include "core/log.h"
#include "core/memory.h"
#include "kernels/matmul_plans.h"
#include "nn/learning_rate.h"
#include "nn/precision.h"
#include "tensor/autograd.h"
#include "tensor/create.h"
#include "train/matmul_tuning.h"
#include "train/metrics.h"
#include "train/parameters_hash.h"
#include "train/processor_peak.h"
#include "train/program.h"
#include "train/progress.h"
#include "train/resume.h"
#include "train/snapshot_writer.h"
#include "train/step_runner.h"
#include "train/stop_request.h"

namespace lockstep {
namespace {

/// A step that was started, until its result is known.
struct StartedStep {
  int64_t index = 0;
  double learning_rate = 0.0;
  double data_wait_seconds = 0.0;
  int64_t samples_of_replica = 0;
  Clock::time_point begin;
};

DType dtype_of_precision(const std::string& precision) {
  return precision == "bf16" ? DType::bf16 : DType::f32;
}

/// The ceiling of all ranks together.
double peak_flops(const Config& config, const World& world) {
  const int gpu = gpu_of(current_stream());
  const double of_rank =
      gpu >= 0 ? gpu_peak_flops(gpu_properties(gpu).name, dtype_of_precision(config.train.precision))
               : measure_peak_flops() * static_cast<double>(config.train.threads);
  return of_rank * world.size();
}

/// One run, from start to end, on one rank.
class Run {
 public:
  Run(const Config& config, const World& world, const TrainingTask& task)
      : config_(config),
        world_(world),
        task_(task),
        data_parallel_(task.parameters, world, data_parallel_options(config, world)),
        optimizer_(task.make_optimizer(task.parameters)),
        loader_(task.training_data, {.replicas = config.dist.replicas,
                                     .first_replica = data_parallel_.replicas().begin,
                                     .end_replica = data_parallel_.replicas().end,
                                     .batch_size = config.train.batch_size,
                                     .seed = static_cast<uint64_t>(config.train.seed),
                                     .shuffle = task.shuffle,
                                     .whole_batches = config.train.accumulate > 1}),
        runner_(task, data_parallel_, *optimizer_,
                {.batch_size = config.train.batch_size,
                 .accumulate = config.train.accumulate,
                 .grad_clip = config.train.grad_clip,
                 .seed = static_cast<uint64_t>(config.train.seed),
                 .graph = config.train.graph}),
        total_steps_(config.train.steps ? config.train.steps
                                        : config.train.epochs * loader_.steps_per_epoch()),
        schedule_{.peak = config.train.learning_rate,
                  .floor = config.train.min_lr,
                  .warmup_steps = config.train.warmup_steps,
                  .decay_steps = total_steps_},
        peak_flops_(peak_flops(config, world)) {
    refresh_compute_copies(task.parameters);  // rank 0's values are everybody's now
  }

  int operator()(const std::optional<Snapshot>& found);

 private:
  void resume(const std::optional<Snapshot>& found);
  void describe() const;
  void start(int64_t index);
  void finish_oldest();
  StepMetrics metrics_of(const StartedStep& step);
  bool observe(StepMetrics& metrics);
  Snapshot snapshot(int64_t step) const;
  void save(int64_t step, SnapshotWriter::Purpose purpose);
  bool save_last_step();
  int finish();
  int stop();
  bool is_due(int64_t step, int64_t every) const {
    return step == total_steps_ || (every > 0 && step % every == 0);
  }
  /// Whether something after this step needs its outcome before the next one starts.
  bool is_watched(int64_t step) const {
    return (task_.validation_data && is_due(step, config_.train.eval_every)) ||
           is_due(step, config_.snapshot.every_steps) ||
           (config_.train.sample_every > 0 && is_due(step, config_.train.sample_every));
  }

  const Config& config_;
  const World& world_;
  const TrainingTask& task_;
  DataParallel data_parallel_;
  std::unique_ptr<Optimizer> optimizer_;
  Loader loader_;
  StepRunner runner_;
  int64_t total_steps_;
  CosineSchedule schedule_;
  double peak_flops_;
  int64_t first_step_ = 0;
  std::deque<StartedStep> started_;
  Clock::time_point last_end_;
  std::optional<double> best_validation_loss_;
  int64_t last_step_ = 0;                      ///< whose result is known
  bool has_asked_ = false;                     ///< this rank asked all to stop
  bool stopping_ = false;                      ///< all ranks know that one did
  std::unique_ptr<MetricsWriter> writer_;      ///< on rank 0
  std::unique_ptr<SnapshotWriter> snapshots_;  ///< on rank 0, where snapshots are wanted
  std::unique_ptr<Progress> progress_;         ///< on rank 0
};

int Run::operator()(const std::optional<Snapshot>& found) {
  resume(found);
  const bool is_first = world_.is_first();
  if (is_first) {
    describe();
    writer_ = std::make_unique<MetricsWriter>(config_.log.dir + "/metrics.jsonl", first_step_);
    progress_ = std::make_unique<Progress>(total_steps_, first_step_, config_.log.every_steps, std::cerr,
                                           Display::of_stderr());
    if (!config_.snapshot.path.empty())
      snapshots_ = std::make_unique<SnapshotWriter>(config_.snapshot.path, config_.snapshot.keep,
                                                    best_validation_loss_);
  }
  loader_.seek(first_step_);
  // A GPU gets its next step before the result of this one is read.
  const size_t most_ahead = device_of(current_stream()) == Device::cuda ? 1 : 0;
  beat("training");
  heartbeat().deadline_seconds.store(config_.dist.timeout_s);
  for (int64_t index = first_step_; index < total_steps_ && !stopping_; ++index) {
    start(index);
    while (started_.size() > (is_watched(index + 1) ? 0 : most_ahead)) finish_oldest();
  }
  while (!started_.empty()) finish_oldest();
  // Writing the last snapshot may take longer than any deadline.
  heartbeat().deadline_seconds.store(0.0);
  progress_.reset();
  return last_step_ < total_steps_ ? stop() : finish();
}

/// The end of a run whose steps are all done.
int Run::finish() {
  const uint64_t hash_value = parameters_hash(task_.parameters);
  const std::string hash = hash_text(hash_value);
  require_equal_on_all_ranks(world_.communicator(), "the trained parameters", hash);
  if (snapshots_ && first_step_ < total_steps_ && !save_last_step())
    log_error(concat("the last snapshot, of step ", total_steps_, ", is missing in ", config_.snapshot.path));
  if (writer_) writer_->finish(hash_value);
  if (world_.is_first())
    log_info(concat("done: ", total_steps_, " steps, parameters ", hash, ", results in ", config_.log.dir));
  return 0;
}

/// The end for now: whoever asked may start the run again, if there is something to go on from.
int Run::stop() {
  const bool is_saved = snapshots_ && save_last_step();
  world_.communicator().set_timeout(std::numeric_limits<double>::infinity());
  const bool is_everybodys = world_.communicator().broadcast_text(is_saved ? "saved" : "", 0) == "saved";
  if (!world_.is_first()) return is_everybodys ? exit_stopped : 1;
  if (is_saved)
    log_info(concat("stopped on request after step ", last_step_, "; start the run again to go on"));
  else
    log_error(concat("stopped on request after step ", last_step_, " without a snapshot of it",
                     config_.snapshot.path.empty() ? ", since snapshot.path is empty" : ""));
  return is_saved ? exit_stopped : 1;
}

/// Loads what there is to go on from. A run that has ended has no step left, but its last line may be
/// missing.
void Run::resume(const std::optional<Snapshot>& found) {
  if (!found) return;
  restore(*found, task_.parameters, *optimizer_);
  first_step_ = last_step_ = found->step;
  best_validation_loss_ = found->best_validation_loss;
  if (found->is_finished && world_.is_first())
    log_info(concat("this run is finished: ", found->step, " steps are in ", config_.snapshot.path));
}

/// Nothing is said or overwritten before the run is accepted, so that a refusal is the first thing a user
/// reads and the files of an earlier run stay.
void Run::describe() const {
  const int gpu = gpu_of(current_stream());
  const std::string device =
      gpu >= 0 ? concat(describe_gpu(gpu), ", ", config_.train.precision, ", gradients ",
                        data_parallel_.transport())
               : concat(config_.train.threads, config_.train.threads == 1 ? " thread" : " threads", " each, ",
                        instruction_set());
  log_info(concat(config_.dist.replicas, config_.dist.replicas == 1 ? " replica on " : " replicas on ",
                  world_.size(), gpu >= 0 ? " GPU" : " CPU", world_.size() == 1 ? " rank (" : " ranks (",
                  device, ")"));
  if (!task_.description.empty()) log_info(task_.description);
  log_info(concat("memory: ", data_parallel_.gradient_sets(), " gradient buffers of ",
                  count_parameters(task_.parameters) >> 18, " MiB a rank"));
  try {
    write_file(config_.log.dir + "/config.ini", to_ini(config_));
  } catch (const Error& problem) {
    log_error(concat(problem.what(), "; training goes on"));
  }
}

void Run::start(int64_t index) {
  StartedStep started{.index = index, .begin = Clock::now()};
  const Step step = loader_.next();
  if (stop_was_requested() && !std::exchange(has_asked_, true)) runner_.ask_to_stop();
  started.data_wait_seconds = seconds_since(started.begin);
  started.learning_rate = schedule_.at(index);
  // Every replica has the same number of samples, so this rank knows the whole step.
  started.samples_of_replica = step.batches.front().samples;
  if (task_.on_epoch && index % loader_.steps_per_epoch() == 0)
    task_.on_epoch(step.epoch, step.batches.front().samples, loader_.steps_per_epoch());
  runner_.start(step, started.learning_rate);
  started_.push_back(started);
}

void Run::finish_oldest() {
  StepMetrics metrics = metrics_of(started_.front());
  started_.pop_front();
  const bool is_best = observe(metrics);
  if (writer_) writer_->write(metrics);
  save(metrics.step, {.step = is_due(metrics.step, config_.snapshot.every_steps), .best = is_best});
}

StepMetrics Run::metrics_of(const StartedStep& started) {
  const StepResult result = runner_.collect();
  const int64_t step = started.index + 1;
  last_step_ = step;
  heartbeat().step.store(step);
  stopping_ |= result.stop;
  expect(std::isfinite(result.loss) && std::isfinite(result.gradient_norm), "step ", step, ": the loss is ",
         result.loss, " and the gradient norm ", result.gradient_norm,
         "; lower train.learning_rate, or set train.grad_clip");
  const double seconds = seconds_since(std::max(started.begin, last_end_));
  last_end_ = Clock::now();
  const auto tokens =
      static_cast<double>(started.samples_of_replica * config_.dist.replicas * task_.tokens_per_sample);
  return {.step = step,
          .loss = result.loss,
          .learning_rate = started.learning_rate,
          .gradient_norm = result.gradient_norm,
          .tokens_per_second = tokens / seconds,
          .step_ms = seconds * 1e3,
          .exposed_communication_ms = data_parallel_.exposed_seconds() * 1e3,
          .data_wait_ms = started.data_wait_seconds * 1e3,
          .model_flops_utilization =
              peak_flops_ > 0.0 ? tokens * task_.flops_per_token / seconds / peak_flops_ : 0.0,
          .memory_mib = static_cast<double>(memory_table(current_stream()).back().peak_bytes) / 1048576.0};
}

/// Evaluates and writes text where that is due, and tells the progress. Returns whether the model is the best
/// so far.
bool Run::observe(StepMetrics& metrics) {
  bool is_best = false;
  if (progress_) progress_->update(metrics.step, metrics.loss, metrics.tokens_per_second);
  if (task_.validation_data && is_due(metrics.step, config_.train.eval_every)) {
    const double loss =
        evaluate(world_, task_, *task_.validation_data, config_.train.batch_size / config_.train.accumulate);
    metrics.validation_loss = loss;
    // What could not be kept is not the best that there is.
    if (snapshots_) best_validation_loss_ = snapshots_->best_loss();
    is_best = !best_validation_loss_ || loss < *best_validation_loss_;
    if (is_best) best_validation_loss_ = loss;
    if (progress_)
      progress_->print(
          concat("step ", metrics.step, ": validation loss ", loss, is_best ? " (best so far)" : ""));
    last_end_ = Clock::now();
  }
  // The last step always shows what the model has learnt.
  const bool writes =
      task_.sample_text && config_.train.sample_every > 0 && is_due(metrics.step, config_.train.sample_every);
  if (progress_ && writes) progress_->print(task_.sample_text());
  return is_best;
}

Snapshot Run::snapshot(int64_t step) const {
  return {.step = step,
          .optimizer_steps = optimizer_->steps_taken(),
          .is_finished = step == total_steps_,
          .best_validation_loss = best_validation_loss_,
          .configuration = to_ini(config_),
          .artifacts = task_.artifacts,
          .matmul_plans = export_matmul_plans(),
          .model = task_.parameters,
          .optimizer = optimizer_->state()};
}

void Run::save(int64_t step, SnapshotWriter::Purpose purpose) {
  if (!snapshots_ || (!purpose.step && !purpose.best)) return;
  // A snapshot must never be ahead of the lines it builds on.
  if (writer_) writer_->sync();
  beat("snapshot");
  // The other ranks wait meanwhile, no longer than they are ready to.
  snapshots_->save(snapshot(step), purpose, config_.dist.timeout_s / 2);
}

/// Whether there is a snapshot of the last step. It may have been left out, because the one before took long:
/// now nobody waits any more.
bool Run::save_last_step() {
  if (snapshots_->finish() != last_step_) save(last_step_, {.step = true});
  return snapshots_->finish() == last_step_;
}

}  // namespace

int train(Config config, const World& world, const TrainingTask& task) {
  // Whoever made the configuration, it is checked and settled as one from a file.
  config = config_from_ini(to_ini(config), "the configuration");
  if (config.train.threads == 0) config.train.threads = world.share_of_cores();
  const Device device = task.parameters.empty() ? Device::cpu : device_of(task.parameters[0].tensor.stream());
  if (config.train.device == "auto") config.train.device = name(device);
  require(config.train.device == name(device) && device_of(current_stream()) == device,
          "train.device = ", config.train.device, ", but the model was made on ", name(device));
  settle_device(config);
  settle_replicas(config, world.size());
  world.communicator().set_timeout(config.dist.timeout_s);
  require_same_configuration(config, world);
  std::string artifacts;
  for (const auto& [name, artifact] : task.artifacts)
    artifacts += concat(name, " = ", hash_text(hash_of(artifact)), "\n");
  require_equal_on_all_ranks(world.communicator(), "the data", artifacts);
  make_log_folder(config);
  try {
    const char* records = std::getenv("LOCKSTEP_RECORDS");
    world.communicator().record_flights_in(records ? records : config.log.dir);
  } catch (const Error& failure) {
    log_warning(concat(failure.what(), "; it is kept in memory only"));
  }
  set_precision(task.parameters, dtype_of_precision(config.train.precision));
  const std::optional<Snapshot> found = find_snapshot_to_resume(config, world, task.artifacts);
  settle_matmul_plans(config, world, task, found ? found->matmul_plans : "");
  return Run(config, world, task)(found);
}

DataParallel::Options data_parallel_options(const Config& config, const World& world) {
  return {.replicas = static_cast<int>(config.dist.replicas),
          .accumulate = static_cast<int>(config.train.accumulate),
          .reduction = config.dist.reduction == "tree" ? Reduction::tree : Reduction::native,
          .bucket_bytes = static_cast<int64_t>(config.dist.bucket_mib * 1048576.0),
          .overlap = world.has_spare_core(static_cast<int>(config.train.threads))};
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
    beat("evaluation");
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
