// SPDX-License-Identifier: Apache-2.0
#include "train/run.h"

#include <cmath>
#include <deque>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/heartbeat.h"
#include "comm/stop_request.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "kernels/matmul_plans.h"
#include "metrics/metrics.h"
#include "program/signals.h"
#include "train/early_stopping.h"
#include "train/evaluation.h"
#include "train/parameter_check.h"
#include "train/progress.h"
#include "train/run_log.h"
#include "train/run_snapshots.h"
#include "train/schedule.h"
#include "train/scope.h"
#include "train/step_meter.h"
#include "train/step_runner.h"

namespace lockstep {
namespace {

/// A step that was started and whose result is not known yet.
struct StartedStep {
  StepMetrics metrics = {};  ///< the fields that are known before the result
  int64_t samples_of_replica = 0;
  Clock::time_point begin;
};

/// A run from start to end, on one rank.
class Run {
 public:
  Run(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
      RunFolder& folder)
      : config_(config),
        world_(world),
        task_(task),
        space_(space),
        folder_(folder),
        engine_(config, world, task, space),
        loader_(task.training_data, loader_options(config, world, task, engine_.data_parallel)),
        runner_(config.train, task, engine_, [this] { vote(); }),
        total_steps_(config.train.steps),
        learning_rate_(schedule_of(config.train)),
        meter_(task, peak_flops(config, world)),
        parameter_check_(world, space, engine_.data_parallel),
        tensors_(space, engine_.optimizer.get(), engine_.data_parallel.setup.sharding.masters,
                 engine_.data_parallel.setup.sharding.updates),
        early_stopping_{.patience = config.train.patience, .min_delta = config.train.min_delta},
        peak_memory_(world) {}

  int operator()() {
    // States are placed before they are read. A rank then allocates memory only for its own states.
    engine_.data_parallel.place_states(*engine_.optimizer);
    folder_.load(tensors_);
    // A finished run has no steps left, but the last line of its metrics may be missing.
    begin();
    on_first_rank(world_, [this] { open_files(); });
    loader_.seek(first_step_);
    report_progress("training");
    heartbeat().deadline_seconds.store(config_.dist.timeout_s);
    if (validation_is_pending_) validate_pending();
    run_steps();
    // Writing the last snapshot may take longer than the deadline.
    heartbeat().deadline_seconds.store(0.0);
    progress_.reset();
    return last_step_ < total_steps_ || validation_is_pending_ ? stop() : finish();
  }

 private:
  /// Sets everything but the tensors to the state of the snapshot that is loaded, if there is one.
  void begin() {
    const Snapshot* found = folder_.snapshot();  // an older one than before, if that was damaged
    if (found && world_.is_first()) compare_scope(*found, scope_of_bits(config_, world_));
    snapshots_.emplace(config_, world_, folder_, tensors_, task_.layout ? task_.layout() : ModelLayout(),
                       [this] { writer_->sync(); });
    if (found == nullptr && task_.initial_values) task_.initial_values(world_, tensors_);
    if (found != nullptr || task_.initial_values) engine_.data_parallel.values.refresh_copies();
    if (found == nullptr) return;
    engine_.optimizer->set_steps_taken(found->optimizer_steps);
    if (engine_.scaler && found->grad_scale) engine_.scaler->set_state(*found->grad_scale);
    first_step_ = last_step_ = found->step;
    early_stopping_.record = found->validations;
    if (early_stopping_.is_over()) total_steps_ = found->step;
    // The resumed run may have turned this validation off.
    validation_is_pending_ = found->is_validation_pending && validates(found->step);
  }

  /// Logs the start and opens the run's files, on rank 0. Nothing is logged or overwritten before the run is
  /// accepted. A refusal is then the first message, and the files of an earlier run remain.
  void open_files() {
    log_start(config_, world_, task_, engine_.data_parallel, total_steps_);
    const auto states = std::ssize(engine_.optimizer->state_names());
    const int64_t bytes = 4 * (space_.layout.elements() + states * space_.layout.trainable_elements());
    snapshots_->describe(bytes, task_.validation_data != nullptr);
    write_fingerprint(config_, task_.artifacts);
    open_metrics();
  }

  void open_metrics() {
    progress_.reset();
    writer_.reset();
    writer_ = std::make_unique<MetricsWriter>(config_.log.dir + "/metrics.jsonl", first_step_,
                                              [this] { folder_.check_folders(); });
    progress_ = std::make_unique<Progress>(Progress::Options{.total_steps = total_steps_,
                                                             .first_step = first_step_,
                                                             .every_steps = config_.log.every_steps,
                                                             .unit = task_.unit},
                                           Display::of_stderr(), std::cerr, std::cout);
  }

  void run_steps() {
    // A GPU gets its next step before the result of the current one is read.
    const size_t most_ahead = device_of(current_stream()) == Device::cuda ? 1 : 0;
    for (next_ = first_step_; next_ < total_steps_ && !stopping_;) {
      start(next_++);
      while (started_.size() > (needs_result(next_) ? 0 : most_ahead)) finish_oldest();
      if (next_ >= total_steps_ || stopping_)
        while (!started_.empty()) finish_oldest();
    }
  }

  /// Goes back to the snapshot before the one that this start resumed from, because the step that has ended
  /// is not finite and no snapshot was written since. The cause may be that snapshot: a host may have written
  /// wrong values with right checksums. Returns false if the run cannot go back, or if it did so before.
  bool go_back(const StepResult& result) {
    if (is_finite(result) || folder_.snapshot() == nullptr || snapshots_->has_begun_any() || has_gone_back_)
      return false;
    has_gone_back_ = true;
    for (; !started_.empty(); started_.pop_front()) stopping_ |= runner_.collect().stop;
    snapshots_->finish();
    heartbeat().deadline_seconds.store(0.0);
    if (!folder_.go_back(last_step_, concat("the loss is ", result.loss), tensors_)) return false;
    begin();
    on_first_rank(world_, [this] { open_metrics(); });
    report_progress("training");
    heartbeat().deadline_seconds.store(config_.dist.timeout_s);
    loader_.seek(next_ = first_step_);
    if (validation_is_pending_) validate_pending();
    return true;
  }

  /// Ends a run whose steps are all done. Returns the exit code.
  int finish() {
    const uint64_t hash_value = parameter_check_.compare(total_steps_);
    if (!world_.is_first())
      log_to_file(concat("step ", total_steps_, ": parameters ", hash_text(hash_value)));
    const Snapshot* found = folder_.snapshot();
    const bool is_there = found && found->is_finished && found->step == total_steps_;
    const bool is_lost = !config_.snapshot.path.empty() && !is_there && !snapshots_->save_last(snapshot());
    const NoTimeout no_timeout(world_.communicator());
    const bool is_kept = world_.communicator().on_every_rank(!is_lost);
    if (world_.is_first() && !is_kept)
      log_error(concat("all ", total_steps_,
                       " steps are done, but the final snapshot could not be written to ",
                       config_.snapshot.path, ": fix the error above and run the same command again"));
    if (is_kept) log_memory(world_, task_);
    if (!world_.is_first() || !is_kept) return is_kept ? 0 : 1;
    folder_.check_recently();
    const bool is_recorded =
        writer_->finish(hash_value, early_stopping_.is_over() ? config_.train.patience : 0);
    log_end(config_, task_, total_steps_, hash_text(hash_value), early_stopping_.reason());
    return is_recorded ? 0 : 1;
  }

  /// Ends the run after a request to stop. It can be resumed if there is a snapshot. Returns the exit code.
  int stop() {
    // Steps before this start are in a snapshot, or there were none. So only steps of this start need one.
    if (last_step_ != first_step_) parameter_check_.compare(last_step_);
    const bool is_saved = last_step_ == first_step_ || snapshots_->save_last(snapshot());
    const NoTimeout no_timeout(world_.communicator());
    const bool is_everybodys = world_.communicator().broadcast_value(is_saved, 0);
    if (!world_.is_first()) return is_everybodys ? exit_stopped : 1;
    log_stop(config_, last_step_, validation_is_pending_, is_saved);
    return is_saved ? exit_stopped : 1;
  }

  void start(int64_t index) {
    StartedStep started{.begin = Clock::now()};
    const Step step = loader_.next();
    started.metrics = {.step = index + 1,
                       .epoch = step.epoch,
                       .learning_rate = learning_rate_(index),
                       .data_wait_ms = seconds_since(started.begin) * 1e3};
    // Every replica has the same number of samples, so this rank knows the size of the whole step.
    started.samples_of_replica = step.batches.front().samples * config_.train.accumulate;
    if (progress_ && task_.epoch_text && index % loader_.steps_per_epoch() == 0)
      progress_->begin_epoch(step.epoch, [this, samples = started.samples_of_replica](int64_t a, int64_t b) {
        return task_.epoch_text(a, b, samples, loader_.steps_per_epoch());
      });
    runner_.start(step, started.metrics.learning_rate);
    started_.push_back(started);
  }

  /// Sends this rank's requests, to stop or to write a snapshot, to all ranks with the current step.
  void vote() {
    const bool wants_snapshot = snapshots_->is_time();
    if (wants_snapshot != std::exchange(has_asked_for_snapshot_, wants_snapshot))
      engine_.data_parallel.summary.vote(Vote::snapshot, wants_snapshot);
    if (!stop_was_requested() || std::exchange(has_asked_to_stop_, true)) return;
    engine_.data_parallel.summary.vote(Vote::stop);
    if (progress_) progress_->print(stop_notice());
  }

  std::string stop_notice() const {
    // On a GPU the next step has started before the votes of this step are read.
    const bool on_gpu = device_of(current_stream()) == Device::cuda;
    const double seconds = meter_.step_seconds() * (on_gpu ? 3.0 : 1.0);
    const bool is_alone = world_.size() == 1 && !is_supervised();
    return concat("asked to stop: the current step is finished and saved first",
                  seconds > 2.0 ? concat(", which takes ", std::llround(seconds), " s") : "",
                  is_alone ? "; Ctrl-C again ends at once" : "");
  }

  void finish_oldest() {
    const StartedStep started = started_.front();
    started_.pop_front();
    const StepResult result = runner_.collect();
    last_step_ = started.metrics.step;
    stopping_ |= result.stop;
    if (go_back(result)) return;
    StepMetrics metrics = metrics_of(started, result);
    if (progress_) progress_->update(metrics.step, metrics.loss, metrics.tokens_per_second);
    if (metrics.step == total_steps_ && validates(metrics.step)) return finish_last(metrics);
    metrics.validation_loss = validate(metrics.step);
    const bool is_best = judge(metrics.validation_loss);
    folder_.check_recently();
    snapshots_->go_on();
    if (writer_) writer_->write(metrics);
    // Once a later step has started, the model is no longer the model of this step.
    const bool is_asked_for = snapshots_->is_wanted() && started_.empty();
    const bool saves = is_asked_for || snapshots_->is_due(metrics.step) || metrics.step == total_steps_;
    save({.step = saves, .best = is_best});
    write_sample(metrics.step);
    if (saves || metrics.validation_loss || metrics.step == first_step_ + 1) peak_memory_.log(metrics.step);
  }

  /// Ends the last step of a run that validates there. The snapshot comes first, so that a job that ends
  /// during the validation loses nothing.
  void finish_last(const StepMetrics& metrics) {
    folder_.check_recently();
    if (writer_) writer_->write(metrics);
    validation_is_pending_ = true;
    parameter_check_.compare_if_cheap(metrics.step);
    // The snapshot may take longer than the deadline, also because a bucket does not answer.
    heartbeat().deadline_seconds.store(0.0);
    snapshots_->save_last(snapshot());
    report_progress("evaluation");
    heartbeat().deadline_seconds.store(config_.dist.timeout_s);
    validate_pending();
    if (!validation_is_pending_) write_sample(metrics.step);
  }

  StepMetrics metrics_of(const StartedStep& started, const StepResult& result) {
    StepMetrics metrics = started.metrics;
    heartbeat().step.store(last_step_);
    if (result.snapshot) snapshots_->want();
    require_finite(last_step_, result, metrics.learning_rate);
    if (progress_ && result.was_skipped())
      progress_->print(concat("step ", last_step_, " was skipped: gradients times the loss scale do not fit ",
                              "fp16; the scale is ", result.grad_scale->scale, " now"));
    metrics.loss = result.loss;
    metrics.gradient_norm = result.gradient_norm;
    metrics.grad_scale = result.grad_scale;
    metrics.exposed_communication_ms = engine_.data_parallel.summary.exposed_seconds() * 1e3;
    meter_.measure(metrics, started.begin, started.samples_of_replica * config_.dist.replicas);
    return metrics;
  }

  /// Returns the validation loss; nothing if none is due after this step or a request to stop interrupts it.
  std::optional<double> validate(int64_t step) {
    if (!validates(step)) return std::nullopt;
    const auto loss =
        evaluate(world_, engine_.data_parallel, task_, *task_.validation_data,
                 config_.train.batch_size / config_.train.accumulate, [this](int64_t done, int64_t batches) {
                   if (progress_) progress_->validate(done, batches);
                 });
    validation_is_pending_ = !loss;
    stopping_ |= !loss;
    meter_.skip();
    return loss;
  }

  /// Runs the validation after the last step that the newest snapshot does not contain.
  void validate_pending() {
    const auto loss = validate(last_step_);
    if (!loss) return;
    folder_.check_recently();
    if (writer_) writer_->add_validation_loss(last_step_, *loss);
    save({.step = false, .best = judge(loss)});
  }

  /// Returns whether the model of the last step is the best so far.
  bool judge(std::optional<double> validation_loss) {
    if (!validation_loss) return false;
    early_stopping_.judge(last_step_, *validation_loss);
    if (early_stopping_.is_over()) total_steps_ = last_step_;
    // Rank 0 decides for all ranks. It knows whether the best snapshot so far could be written.
    const bool is_best = world_.communicator().broadcast_value(snapshots_->is_best(*validation_loss), 0);
    if (progress_)
      progress_->print(concat("step ", last_step_, ": validation loss ", *validation_loss,
                              is_best ? " (best so far)" : ""));
    return is_best;
  }

  /// Saves a snapshot of the last step for these purposes, if any. All ranks call it.
  void save(SnapshotWriter::Purpose purpose) {
    if (!purpose.step && !purpose.best) return;
    parameter_check_.compare_if_cheap(last_step_);
    // Taking a snapshot waits for a GPU.
    if (!config_.snapshot.path.empty()) snapshots_->save(snapshot(), purpose);
  }

  /// Shows a sample text if one is due. After the last step it shows the result.
  void write_sample(int64_t step) {
    const int64_t every = config_.train.sample_every;
    if (!task_.sample_text || every == 0 || !is_due(step, every) || stopping_) return;
    stopping_ |= !generate_sample(world_, engine_.data_parallel, task_, [&](const std::string& text) {
      if (progress_) progress_->print(concat("step ", step, ", the model writes:\n", text));
    });
    meter_.skip();
  }

  Snapshot snapshot() const {
    return {.step = last_step_,
            .optimizer_steps = engine_.optimizer->steps_taken(),
            .is_finished = last_step_ == total_steps_ && !validation_is_pending_,
            .is_validation_pending = validation_is_pending_,
            .best_validation_loss = {},
            .validations = early_stopping_.record,
            .grad_scale = engine_.scaler ? std::optional(engine_.scaler->state()) : std::nullopt,
            .configuration = to_ini(config_),
            .artifacts = task_.artifacts,
            .matmul_plans = export_matmul_plans(),
            .scope = scope_of_bits(config_, world_)};
  }

  bool is_due(int64_t step, int64_t every) const {
    return every >= 0 && (step == total_steps_ || (every > 0 && step % every == 0));
  }
  bool validates(int64_t step) const {
    return task_.validation_data && is_due(step, config_.train.eval_every);
  }
  /// Returns whether the result of this step is needed before the next step starts.
  bool needs_result(int64_t step) const {
    return validates(step) || snapshots_->is_wanted() || snapshots_->is_due(step) ||
           (config_.train.sample_every > 0 && is_due(step, config_.train.sample_every));
  }

  const Config& config_;
  const World& world_;
  const TrainingTask& task_;
  ParameterSpace& space_;
  RunFolder& folder_;
  TrainingEngine engine_;
  Loader loader_;
  StepRunner runner_;
  int64_t total_steps_;
  std::function<double(int64_t)> learning_rate_;  ///< takes the index of a step
  StepMeter meter_;
  int64_t first_step_ = 0;
  int64_t next_ = 0;  ///< index of the step that starts next
  std::deque<StartedStep> started_;
  ParameterCheck parameter_check_;
  SpaceTensors tensors_;
  std::unique_ptr<MetricsWriter> writer_;  ///< on rank 0; the threads of snapshots_ use it
  std::optional<RunSnapshots> snapshots_;  ///< made when the snapshot to resume from is loaded
  int64_t last_step_ = 0;                  ///< the last step whose result is known
  bool has_asked_to_stop_ = false;         ///< this rank has voted for it
  bool has_asked_for_snapshot_ = false;    ///< and has not withdrawn it
  bool stopping_ = false;                  ///< a rank has asked, and all ranks know it
  EarlyStopping early_stopping_;
  bool validation_is_pending_ = false;  ///< the newest snapshot does not contain the validation of its step
  bool has_gone_back_ = false;          ///< in this start
  PeakMemoryLog peak_memory_;
  std::unique_ptr<Progress> progress_;  ///< on rank 0
};

}  // namespace

int run_training(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
                 RunFolder& folder) {
  // The threads of a run write snapshots and load batches. Their ends may wait for storage.
  Run run(config, world, task, space, folder);
  return report_first([&run] { return run(); });
}

}  // namespace lockstep
