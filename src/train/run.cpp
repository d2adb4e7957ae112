// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/run.h"

#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/stop_request.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"
#include "lockstep/events/events.h"
#include "lockstep/job/load_job.h"
#include "lockstep/kernels/matmul_plans.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/metrics/metrics.h"
#include "lockstep/parameters/learning_rate.h"
#include "lockstep/program/build.h"
#include "lockstep/program/signals.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/parameter_check.h"
#include "lockstep/train/run_log.h"
#include "lockstep/train/run_snapshots.h"
#include "lockstep/train/run_state.h"
#include "lockstep/train/step_runner.h"

namespace lockstep {
namespace {

/// A run from start to end, on one rank.
class Run {
 public:
  explicit Run(const RunParts& parts)
      : parts_(parts),
        facts_(parts.task.facts()),
        engine_(parts.job, parts.world, parts.task, parts.space),
        loader_(engine_.loader(parts.task, loader_options(parts.job, parts.world, parts.task))),
        runner_(parts.job, parts.task, engine_, [this] { vote(); }),
        tensors_(parts.space, engine_.optimizer.get(), engine_.data_parallel.setup.sharding.masters,
                 engine_.data_parallel.setup.sharding.updates),
        learning_rate_(schedule_of(parts.job.schedule)),
        parameter_check_(parts.world, parts.space, engine_.data_parallel),
        at_{.total = parts.job.length.steps},
        validations_{
            {.patience = parts.job.validation.patience, .min_delta = parts.job.validation.min_delta}},
        output_{StepMeter(facts_, peak_flops(parts.job, parts.world)),
                PeakMemoryLog(parts.world, parts.job.log.dir),
                StepTrace(trace_path(parts.job, parts.world), parts.world.rank())} {}

  int operator()() {
    // States are placed before they are read. A rank then allocates memory only for its own states.
    engine_.data_parallel.place_states(*engine_.optimizer);
    parts_.folder.load(tensors_);
    // A finished run has no steps left, but the last line of its metrics may be missing.
    begin();
    on_first_rank(parts_.world, [this] { open_files(); });
    loader_.seek(at_.first);
    report_progress("training");
    heartbeat().deadline_seconds.store(parts_.job.dist.timeout_s);
    if (validations_.is_pending) validate_pending();
    run_steps();
    // Writing the last snapshot may take longer than the deadline.
    heartbeat().deadline_seconds.store(0.0);
    output_.progress.reset();
    return at_.last < at_.total || validations_.is_pending ? stop() : finish();
  }

 private:
  /// Sets everything but the tensors to the state of the snapshot that is loaded, if there is one.
  void begin() {
    const Snapshot* found = parts_.folder.snapshot();  // an older one than before, if that was damaged
    if (found && parts_.world.is_first()) compare_scope(*found, scope_);
    snapshots_.emplace(parts_.job, parts_.world, parts_.folder, tensors_, parts_.task.layout(),
                       [this] { output_.metrics->sync(); });
    if (found != nullptr || parts_.task.load_initial_values(parts_.world, tensors_)) {
      parts_.space.values.allow_zeros();
      engine_.data_parallel.values.refresh_copies();
    }
    chain_ = found ? found->chain : start_of_chain(parts_.job, facts_.artifacts);
    chain_.enter({.step = found ? found->step : 0, .build = build_text(), .scope = scope_});
    if (found == nullptr) return;
    engine_.optimizer->set_steps_taken(found->optimizer_steps);
    if (engine_.scaler && found->grad_scale) engine_.scaler->set_state(*found->grad_scale);
    at_.first = at_.last = found->step;
    validations_.early_stopping.record = found->validations;
    if (validations_.early_stopping.is_over()) at_.total = found->step;
    // The resumed run may have turned this validation off.
    validations_.is_pending = found->is_validation_pending && validates(found->step);
  }

  /// Logs the start and opens the run's files, on rank 0. Nothing is logged or overwritten before the run is
  /// accepted. A refusal is then the first message, and the files of an earlier run remain.
  void open_files() {
    log_start(parts_, engine_.data_parallel, at_.total);
    const auto states = std::ssize(engine_.optimizer->state_names());
    const int64_t bytes =
        4 * (parts_.space.layout.elements() + states * parts_.space.layout.trainable_elements());
    snapshots_->describe(bytes, parts_.task.validation_data() != nullptr);
    write_fingerprint(request_of(parts_.job, facts_.artifacts));
    append_event(parts_.job.log.dir, "start", at_.first,
                 {{"program", program_path()},
                  {"build", build_text()},
                  {"scope", scope_},
                  {"ranks", concat(parts_.world.size())},
                  {"replicas", concat(parts_.job.dist.replicas)}});
    open_metrics();
  }

  void open_metrics() {
    output_.progress.reset();
    output_.metrics.reset();
    output_.metrics = std::make_unique<MetricsWriter>(parts_.job.log.dir + "/metrics.jsonl", at_.first,
                                                      [this] { parts_.folder.check_folders(); });
    output_.progress = std::make_unique<Progress>(Progress::Options{.total_steps = at_.total,
                                                                    .first_step = at_.first,
                                                                    .every_steps = parts_.job.log.every_steps,
                                                                    .unit = facts_.unit},
                                                  Display::of_stderr(), std::cerr, std::cout);
  }

  void run_steps() {
    // A GPU gets its next step before the result of the current one is read.
    const size_t most_ahead = device_of(current_stream()) == Device::cuda ? 1 : 0;
    for (at_.next = at_.first; at_.next < at_.total && !requests_.is_stopping;) {
      start(at_.next++);
      while (at_.started.size() > (needs_result(at_.next) ? 0 : most_ahead)) finish_oldest();
      if (at_.next >= at_.total || requests_.is_stopping)
        while (!at_.started.empty()) finish_oldest();
    }
  }

  /// Goes back to the snapshot before the one that this start resumed from, because the step that has ended
  /// is not finite and no snapshot was written since. The cause may be that snapshot: a host may have written
  /// wrong values with right checksums. Returns false if the run cannot go back, or if it did so before.
  bool go_back(const StepResult& result) {
    if (is_finite(result) || parts_.folder.snapshot() == nullptr || snapshots_->has_begun_any() ||
        has_gone_back_)
      return false;
    has_gone_back_ = true;
    for (; !at_.started.empty(); at_.started.pop_front()) requests_.is_stopping |= runner_.collect().stop;
    snapshots_->finish();
    heartbeat().deadline_seconds.store(0.0);
    if (!parts_.folder.go_back(at_.last, concat("the loss is ", result.loss), tensors_)) return false;
    begin();
    on_first_rank(parts_.world, [this] { open_metrics(); });
    report_progress("training");
    heartbeat().deadline_seconds.store(parts_.job.dist.timeout_s);
    loader_.seek(at_.next = at_.first);
    if (validations_.is_pending) validate_pending();
    return true;
  }

  /// Ends a run whose steps are all done. Returns the exit code.
  int finish() {
    const uint64_t hash_value = parameter_check_.compare(at_.total);
    if (!parts_.world.is_first())
      log_to_file(concat("step ", at_.total, ": parameters ", hash_text(hash_value)));
    const Snapshot* found = parts_.folder.snapshot();
    const bool is_there = found && found->is_finished && found->step == at_.total;
    const bool is_lost =
        !parts_.job.snapshot_place().empty() && !is_there && !snapshots_->save_last(snapshot());
    const NoTimeout no_timeout(parts_.world.communicator());
    const bool is_kept = parts_.world.communicator().on_every_rank(!is_lost);
    if (parts_.world.is_first() && !is_kept)
      log_error(concat("all ", at_.total, " steps are done, but the final snapshot could not be written to ",
                       parts_.job.snapshot_place(), ": fix the error above and run the same command again"));
    if (is_kept) log_memory(parts_.world, parts_.planned_bytes);
    if (!parts_.world.is_first() || !is_kept) return is_kept ? 0 : 1;
    parts_.folder.check_recently();
    append_event(parts_.job.log.dir, "end", at_.total, {{"parameters_hash", hash_text(hash_value)}});
    const bool is_recorded = output_.metrics->finish(
        hash_value, validations_.early_stopping.is_over() ? parts_.job.validation.patience : 0);
    log_end(parts_.job, facts_, at_.total, hash_text(hash_value), parts_.job.snapshot_place(),
            validations_.early_stopping.reason());
    return is_recorded ? 0 : 1;
  }

  /// Ends the run after a request to stop. It can be resumed if there is a snapshot. Returns the exit code.
  int stop() {
    // Steps before this start are in a snapshot, or there were none. So only steps of this start need one.
    if (at_.last != at_.first) parameter_check_.compare(at_.last);
    const bool is_saved = at_.last == at_.first || snapshots_->save_last(snapshot());
    const NoTimeout no_timeout(parts_.world.communicator());
    const bool is_everybodys = parts_.world.communicator().broadcast_value(is_saved, 0);
    if (!parts_.world.is_first()) return is_everybodys ? exit_stopped : 1;
    append_event(parts_.job.log.dir, "stop", at_.last);
    log_stop(parts_.job, at_.last, validations_.is_pending, is_saved);
    return is_saved ? exit_stopped : 1;
  }

  void start(int64_t index) {
    const SpanRange span = output_.trace.begin_step(index + 1);
    StartedStep started{.begin = Clock::now()};
    const Step step = loader_.next();
    started.metrics = {.step = index + 1,
                       .epoch = step.epoch,
                       .learning_rate = learning_rate_(index),
                       .data_wait_ms = seconds_since(started.begin) * 1e3};
    // Every replica has the same number of samples, so this rank knows the size of the whole step.
    started.samples_of_replica = step.batches.front().samples * parts_.job.batches.accumulate;
    if (output_.progress && facts_.names_epochs && index % loader_.steps_per_epoch() == 0)
      output_.progress->begin_epoch(step.epoch,
                                    [this, samples = started.samples_of_replica](int64_t a, int64_t b) {
                                      return parts_.task.epoch_text(a, b, samples, loader_.steps_per_epoch());
                                    });
    runner_.start(step, started.metrics.learning_rate);
    at_.started.push_back(started);
  }

  /// Sends this rank's requests, to stop or to write a snapshot, to all ranks with the current step.
  void vote() {
    const bool wants_snapshot = snapshots_->is_time();
    if (wants_snapshot != std::exchange(requests_.has_asked_for_snapshot, wants_snapshot))
      engine_.data_parallel.summary.vote(Vote::snapshot, wants_snapshot);
    if (!stop_was_requested() || std::exchange(requests_.has_asked_to_stop, true)) return;
    engine_.data_parallel.summary.vote(Vote::stop);
    output_.print(stop_notice());
  }

  std::string stop_notice() const {
    // On a GPU the next step has started before the votes of this step are read.
    const bool on_gpu = device_of(current_stream()) == Device::cuda;
    const double seconds = output_.meter.step_seconds() * (on_gpu ? 3.0 : 1.0);
    const bool is_alone = parts_.world.size() == 1 && !is_supervised();
    return concat("asked to stop: the current step is finished and saved first",
                  seconds > 2.0 ? concat(", which takes ", std::llround(seconds), " s") : "",
                  is_alone ? "; Ctrl-C again ends at once" : "");
  }

  void finish_oldest() {
    const StartedStep started = at_.started.front();
    at_.started.pop_front();
    const StepResult result = runner_.collect();
    at_.last = started.metrics.step;
    requests_.is_stopping |= result.stop;
    if (go_back(result)) return;
    StepMetrics metrics = metrics_of(started, result);
    if (output_.progress) output_.progress->update(metrics.step, metrics.loss, metrics.tokens_per_second);
    if (metrics.step == at_.total && validates(metrics.step)) return finish_last(metrics);
    metrics.validation_loss = validate(metrics.step);
    const bool is_best = judge(metrics.validation_loss);
    parts_.folder.check_recently();
    snapshots_->go_on();
    if (output_.metrics) output_.metrics->write(metrics);
    // Once a later step has started, the model is no longer the model of this step.
    const bool is_asked_for = snapshots_->is_wanted() && at_.started.empty();
    const bool saves = is_asked_for || snapshots_->is_due(metrics.step) || metrics.step == at_.total;
    save({.step = saves, .best = is_best});
    write_sample(metrics.step);
    if (saves || metrics.validation_loss || metrics.step == at_.first + 1)
      output_.peak_memory.log(metrics.step);
  }

  /// Ends the last step of a run that validates there. The snapshot comes first, so that a job that ends
  /// during the validation loses nothing.
  void finish_last(const StepMetrics& metrics) {
    parts_.folder.check_recently();
    if (output_.metrics) output_.metrics->write(metrics);
    validations_.is_pending = true;
    parameter_check_.compare_if_cheap(metrics.step);
    // The snapshot may take longer than the deadline, also because a bucket does not answer.
    heartbeat().deadline_seconds.store(0.0);
    snapshots_->save_last(snapshot());
    report_progress("evaluation");
    heartbeat().deadline_seconds.store(parts_.job.dist.timeout_s);
    validate_pending();
    if (!validations_.is_pending) write_sample(metrics.step);
  }

  StepMetrics metrics_of(const StartedStep& started, const StepResult& result) {
    StepMetrics metrics = started.metrics;
    heartbeat().step.store(at_.last);
    if (result.snapshot) snapshots_->want();
    // lockrun records the failures of its ranks itself.
    if (!is_finite(result) && parts_.world.is_first() && !is_supervised())
      append_event(parts_.job.log.dir, "failure", at_.last, {{"cause", concat("the loss is ", result.loss)}});
    require_finite(at_.last, result, metrics.learning_rate);
    if (result.was_skipped())
      output_.print(concat("step ", at_.last, " was skipped: gradients times the loss scale do not fit ",
                           "fp16; the scale is ", result.grad_scale->scale, " now"));
    metrics.loss = result.loss;
    chain_.add(metrics.step, result.loss);
    metrics.gradient_norm = result.gradient_norm;
    metrics.grad_scale = result.grad_scale;
    metrics.exposed_communication_ms = engine_.data_parallel.summary.exposed_seconds() * 1e3;
    output_.meter.measure(metrics, started.begin, started.samples_of_replica * parts_.job.dist.replicas);
    return metrics;
  }

  /// Returns the validation loss; nothing if none is due after this step or a request to stop interrupts it.
  std::optional<double> validate(int64_t step) {
    if (!validates(step)) return std::nullopt;
    const auto loss =
        evaluate(parts_.world, engine_.data_parallel, parts_.task, *parts_.task.validation_data(),
                 parts_.job.micro_batch(), [this](int64_t done, int64_t batches) {
                   if (output_.progress) output_.progress->validate(done, batches);
                 });
    validations_.is_pending = !loss;
    requests_.is_stopping |= !loss;
    output_.meter.skip();
    return loss;
  }

  /// Runs the validation after the last step that the newest snapshot does not contain.
  void validate_pending() {
    const auto loss = validate(at_.last);
    if (!loss) return;
    parts_.folder.check_recently();
    if (output_.metrics) output_.metrics->add_validation_loss(at_.last, *loss);
    save({.step = false, .best = judge(loss)});
  }

  /// Returns whether the model of the last step is the best so far.
  bool judge(std::optional<double> validation_loss) {
    if (!validation_loss) return false;
    validations_.early_stopping.judge(at_.last, *validation_loss);
    if (validations_.early_stopping.is_over()) at_.total = at_.last;
    // Rank 0 decides for all ranks. It knows whether the best snapshot so far could be written.
    const bool is_best =
        parts_.world.communicator().broadcast_value(snapshots_->is_best(*validation_loss), 0);
    output_.print(
        concat("step ", at_.last, ": validation loss ", *validation_loss, is_best ? " (best so far)" : ""));
    return is_best;
  }

  /// Saves a snapshot of the last step for these purposes, if any. All ranks call it.
  void save(SnapshotWriter::Purpose purpose) {
    if (!purpose.step && !purpose.best) return;
    parameter_check_.compare_if_cheap(at_.last);
    // Taking a snapshot waits for a GPU.
    if (!parts_.job.snapshot_place().empty()) snapshots_->save(snapshot(), purpose);
  }

  /// Shows a sample text if one is due. After the last step it shows the result.
  void write_sample(int64_t step) {
    const int64_t every = parts_.job.validation.sample_every;
    if (!facts_.writes_samples || every == 0 || !at_.is_due(step, every) || requests_.is_stopping) return;
    requests_.is_stopping |=
        !generate_sample(parts_.world, engine_.data_parallel, parts_.task, [&](const std::string& text) {
          output_.print(concat("step ", step, ", the model writes:\n", text));
        });
    output_.meter.skip();
  }

  Snapshot snapshot() const {
    return {.step = at_.last,
            .optimizer_steps = engine_.optimizer->steps_taken(),
            .is_finished = at_.last == at_.total && !validations_.is_pending,
            .is_validation_pending = validations_.is_pending,
            .best_validation_loss = {},
            .validations = validations_.early_stopping.record,
            .grad_scale = engine_.scaler ? std::optional(engine_.scaler->state()) : std::nullopt,
            .configuration = to_ini(parts_.job),
            .artifacts = facts_.artifacts,
            .matmul_plans = export_matmul_plans(),
            .scope = scope_,
            .chain = chain_};
  }

  bool validates(int64_t step) const {
    return parts_.task.validation_data() && at_.is_due(step, parts_.job.validation.eval_every);
  }
  /// Returns whether the result of this step is needed before the next step starts.
  bool needs_result(int64_t step) const {
    return validates(step) || snapshots_->is_wanted() || snapshots_->is_due(step) ||
           (parts_.job.validation.sample_every > 0 && at_.is_due(step, parts_.job.validation.sample_every));
  }

  const RunParts parts_;
  const TaskFacts facts_;
  const std::string scope_ = scope_of_bits(parts_.job, parts_.world);
  TrainingEngine engine_;
  Loader loader_;
  StepRunner runner_;
  SpaceTensors tensors_;
  std::function<double(int64_t)> learning_rate_;  ///< takes the index of a step
  ParameterCheck parameter_check_;
  RunChain chain_;  ///< up to at_.last
  RunPosition at_;
  RunRequests requests_;
  RunValidations validations_;
  RunOutput output_;
  std::optional<RunSnapshots> snapshots_;  ///< made when the snapshot to resume from is loaded
  bool has_gone_back_ = false;             ///< in this start
};

}  // namespace

int run_training(const RunParts& parts) {
  // The threads of a run write snapshots and load batches. Their ends may wait for storage.
  Run run(parts);
  return report_first([&run] { return run(); });
}

}  // namespace lockstep
