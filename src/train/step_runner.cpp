// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/step_runner.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/core/error.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/memory.h"
#include "lockstep/events/events.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/spans.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

// Byte offsets of the values in a Summary.
constexpr int64_t loss_offset = 0;
constexpr int64_t votes_offset = loss_offset + sizeof(float);
constexpr int64_t norm_offset = 16;
constexpr int64_t scale_offset = 24;
constexpr int64_t summary_bytes = scale_offset + sizeof(GradScale);

/// Returns the bytes of a tensor with `samples` samples, padded to 256: every tensor is aligned to 16 bytes.
int64_t padded_bytes(const Tensor& tensor, int64_t samples) {
  return (tensor.view().bytes() / tensor.shape()[0] * samples + 255) / 256 * 256;
}

/// Returns the options of DataParallel for a configuration. `scaler` is null unless gradients are scaled.
DataParallel::Options options_of(const Job& job, const World& world, bool shares_memory, GradScaler* scaler) {
  DataParallel::Options options = job.dist.data_parallel(job.batches.accumulate);
  options.overlap = !mode_of(current_stream()).is_dry && world.has_spare_core(job.threads());
  options.shared_memory = shares_memory;
  options.scaler = scaler;
  return options;
}

/// Sets the precision and makes a scaler for fp16; else returns null. Called before DataParallel is made,
/// because the precision decides where values and their copies are stored.
GradScaler* make_scaler(std::optional<GradScaler>& scaler, const Job& job, ParameterSpace& space) {
  space.set_precision(job.compute.precision);
  return space.precision() == DType::f16 ? &scaler.emplace(space) : nullptr;
}

/// Returns whether the loss of a step is the mean over targets that are counted, because samples have
/// unequally many.
bool counts_targets(const Job& job, const TrainingTask& task) {
  return job.text.loss_mean == LossMean::tokens && task.training_data()->counted_targets(0);
}

}  // namespace

Loader::Options loader_options(const Job& job, const World& world, const TrainingTask& task) {
  // A thread prepares batches in the background. If every core computes, it would only slow down the others.
  const bool has_spare_core = job.on_gpu() || world.has_spare_core(job.threads());
  return {.batch_size = job.batches.batch_size,
          .seed = job.seed(),
          .shuffle = task.facts().shuffle,
          .prefetch = has_spare_core};
}

TrainingEngine::TrainingEngine(const Job& job, const World& world, const TrainingTask& task,
                               ParameterSpace& space, bool shares_memory)
    : data_parallel(space, world, options_of(job, world, shares_memory, make_scaler(scaler, job, space))),
      optimizer(task.make_optimizer(space)),
      audit(space, data_parallel, world, job.dist.audit_every, static_cast<int>(job.batches.accumulate),
            [folder = job.log.dir, is_first = world.is_first()](int64_t step, const auto& facts) {
              if (is_first) append_event(folder, "audit", step, facts);
            }) {
  if (scaler) optimizer->count_on_device();
}

Loader TrainingEngine::loader(const TrainingTask& task, Loader::Options options) const {
  options.extra = [plan = audit.plan()](int64_t step) -> std::optional<BatchSlice> {
    const auto work = plan.of_step(step);
    if (!work) return std::nullopt;
    return BatchSlice{work->micro_batch.replica, work->micro_batch.index};
  };
  return data_parallel.loader(task.training_data(), options);
}

StepRunner::StepRunner(const Job& job, const TrainingTask& task, TrainingEngine& engine,
                       std::function<void()> before_votes)
    : job_(job),
      task_(task),
      data_parallel_(engine.data_parallel),
      optimizer_(*engine.optimizer),
      audit_(engine.audit),
      before_votes_(std::move(before_votes)),
      stream_(current_stream()),
      feeder_(stream_, job.micro_batch()),
      step_number_(full({}, 0.0, DType::i32, stream_)),
      inverse_count_(counts_targets(job, task) ? full({}, 1.0, DType::f32, stream_) : Tensor()),
      loss_and_votes_(empty(data_parallel_.summary.loss_and_votes().shape(), DType::f32, stream_)),
      norm_(empty({}, DType::f64, stream_)) {
  expect(loss_and_votes_.view().bytes() <= norm_offset, "the votes do not fit into the summary of a step");
  for (Summary& summary : summaries_)
    summary.memory = on_gpu() ? allocate_pinned(summary_bytes) : allocate(summary_bytes, stream_);
}

/// Reports the phase "training" to lockrun. A dry run reports nothing, because no step runs in it.
void StepRunner::report_training() const {
  if (!mode_of(stream_).is_dry) report_progress("training");
}

void StepRunner::start(const Step& step, double learning_rate) {
  expect(started_ - collected_ < 2, "a third step was started before the first was collected");
  before_votes_();
  report_training();  // a recorded step executes no other report
  const std::vector<Batch> batches = feeder_.load(step.batches);
  launch(stream_, SetStep{.y = step_number_.view(), .value = step.index});
  if (inverse_count_) fill(inverse_count_, step.inverse_count.value());
  optimizer_.prepare(learning_rate);
  const int64_t samples = batches.front().samples;
  const bool is_audited = audit_.begin(step.index, step.extra_batch.has_value());
  if (is_audited || !can_record(batches)) {
    // Releases the graph, because the graph and the step would each need the memory.
    graph_.reset();
    // Cached blocks of other sizes would stay beside those of this step.
    if (samples != whole_samples_) release_cached_memory(stream_);
    whole_samples_ = std::max(whole_samples_, samples);
    run(batches, step.index, step.extra_batch);
    if (samples < whole_samples_) release_cached_memory(stream_);
  } else {
    // The graph would overwrite memory that it lent and that is still in use.
    if (graph_ && graph_->has_lent_memory()) graph_.reset();
    if (!graph_) record(batches, step.index);
    data_parallel_.replay(*graph_);
  }
  copy_summary();
}

/// Returns whether a step can be recorded: not the first, which creates objects, nor one with short batches.
bool StepRunner::can_record(const std::vector<Batch>& batches) const {
  return on_gpu() && job_.compute.graph && started_ > 0 && data_parallel_.setup.is_capturable &&
         optimizer_.can_be_recorded() && batches.front().samples == job_.micro_batch();
}

void StepRunner::record(const std::vector<Batch>& batches, int64_t index) {
  // The graph allocates its own memory, so memory cached by the first step is released.
  synchronize(stream_);
  release_cached_memory(stream_);
  try {
    graph_ = std::make_unique<Graph>(stream_, [&] { run(batches, index, std::nullopt); });
  } catch (const UserError&) {
    throw;
  } catch (const Error& problem) {
    throw Error(concat("the step could not be recorded: ", problem.what(),
                       "; train.graph = false disables recording"));
  }
}

/// `audited`: the micro-batch that this step audits, in host memory; empty: none.
void StepRunner::run(const std::vector<Batch>& batches, int64_t index, const std::optional<Batch>& audited) {
  data_parallel_.begin_step();
  for (const Batch& batch : batches) {
    const Tensor made = loss(batch, index);
    if (!on_gpu()) before_votes_();
    const MemoryScope scope("backward");
    const SpanRange span("backward");
    audit_.backward(made);
  }
  const auto loss_of_audited = [&] {
    Batch batch = audited.value();
    batch.inputs = to_stream(batch.inputs, stream_);
    batch.targets = to_stream(batch.targets, stream_);
    return loss(batch, index);
  };
  audit_.compute_again(loss_of_audited);
  // From here on the rank waits for others, within the timeout of collectives.
  report_training();
  data_parallel_.update(optimizer_, job_.optimizer.grad_clip, [&] { audit_.compare(loss_of_audited); });
  copy(data_parallel_.summary.loss_and_votes(), loss_and_votes_);
  copy(data_parallel_.summary.gradient_norm(), norm_);
}

Tensor StepRunner::loss(const Batch& batch, int64_t index) const {
  const Context context{
      .training = true,
      .seed = job_.seed(),
      .step = static_cast<uint32_t>(index),
      .sample = static_cast<uint32_t>(batch.first_sample),
      .device_step = on_gpu() ? static_cast<const uint32_t*>(step_number_.view().data) : nullptr,
      .loss_scale = data_parallel_.setup.scaler ? data_parallel_.setup.scaler->scale() : Tensor(),
      .inverse_count = inverse_count_};
  report_training();
  const MemoryScope scope("activations");
  const SpanRange span("forward");
  return task_.loss(batch.inputs, batch.targets, context);
}

void StepRunner::copy_summary() {
  Summary& summary = summaries_[static_cast<size_t>(started_ % 2)];
  const auto copy_to_host = [&](int64_t offset, const Tensor& value, int64_t bytes) {
    copy_bytes_in_background(summary.memory.get() + offset, value.view().data, bytes, stream_);
  };
  copy_to_host(loss_offset, loss_and_votes_, loss_and_votes_.view().bytes());
  copy_to_host(norm_offset, norm_, sizeof(double));
  if (const GradScaler* scaler = data_parallel_.setup.scaler)
    copy_to_host(scale_offset, scaler->device_state(), sizeof(GradScale));
  summary.arrived.record(stream_);
  ++started_;
}

StepResult StepRunner::collect() {
  expect(started_ > collected_, "no step was started");
  Summary& summary = summaries_[static_cast<size_t>(collected_ % 2)];
  while (!summary.arrived.has_passed()) {
    data_parallel_.check();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  data_parallel_.check();
  ++collected_;
  StepResult result;
  std::array<float, 2> votes{};
  std::memcpy(&result.loss, summary.memory.get() + loss_offset, sizeof(float));
  std::memcpy(votes.data(), summary.memory.get() + votes_offset, sizeof votes);
  std::memcpy(&result.gradient_norm, summary.memory.get() + norm_offset, sizeof(double));
  if (data_parallel_.setup.scaler)
    std::memcpy(&result.grad_scale.emplace(), summary.memory.get() + scale_offset, sizeof(GradScale));
  result.stop = votes[static_cast<size_t>(Vote::stop)] > 0.0f;
  result.snapshot = votes[static_cast<size_t>(Vote::snapshot)] > 0.0f;
  return result;
}

bool is_finite(const StepResult& result) {
  // Gradients vanish if the scale is below fp16's least normal number.
  constexpr float least_scale = 0x1p-14f;
  if (result.was_skipped() && result.grad_scale->scale >= least_scale) return true;
  return std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
}

/// Divergence is a UserError, because restarting cannot help.
void require_finite(int64_t step, const StepResult& result, double learning_rate) {
  require(is_finite(result), "step ", step, ": the loss is ", result.loss, " and the gradient norm ",
          result.gradient_norm,
          result.grad_scale ? concat(", with a loss scale of ", result.grad_scale->scale) : "",
          ": lower train.learning_rate (here ", learning_rate,
          "), set train.grad_clip or raise train.warmup_steps, and start again with --fresh");
}

BatchFeeder::BatchFeeder(const Stream& stream, int64_t most_samples)
    : compute_(stream), copies_(stream), most_samples_(most_samples) {
  if (device_of(stream) == Device::cuda && !mode_of(stream).is_dry) copies_ = make_gpu_stream(gpu_of(stream));
}

/// Allocates the buffers at the first call, with room for most_samples_, because its batch may be short.
void BatchFeeder::reserve(const std::vector<Batch>& batches) {
  if (loads_ > 0) return;
  const MemoryScope scope("batches");
  for (const Batch& batch : batches)
    bytes_ += padded_bytes(batch.inputs, most_samples_) + padded_bytes(batch.targets, most_samples_);
  for (Stage& stage : stages_) {
    stage.pinned = allocate_pinned(bytes_);
    stage.on_device = allocate(bytes_, copies_);
  }
  fixed_ = Storage::make(bytes_, compute_);
}

std::vector<Batch> BatchFeeder::load(const std::vector<Batch>& batches) {
  if (device_of(compute_) == Device::cpu || mode_of(compute_).is_dry) return batches;
  reserve(batches);
  Stage& stage = stages_[static_cast<size_t>(loads_++ % 2)];
  stage.arrived.synchronize();
  std::vector<Batch> loaded = batches;
  int64_t offset = 0;
  const auto place = [&](Tensor& tensor) {
    const View view = tensor.view();
    expect(offset + view.bytes() <= bytes_, "a batch of ", view.shape, " is larger than most_samples allows");
    std::memcpy(stage.pinned.get() + offset, view.data, static_cast<size_t>(view.bytes()));
    const Tensor fixed(fixed_, offset, view.shape, view.dtype);
    offset += padded_bytes(tensor, view.shape[0]);
    tensor = fixed;
  };
  for (Batch& batch : loaded) {
    place(batch.inputs);
    place(batch.targets);
  }
  stage.taken.hold(copies_);
  copy_bytes_in_background(stage.on_device.get(), stage.pinned.get(), offset, copies_);
  stage.arrived.record(copies_);
  stage.arrived.hold(compute_);
  copy_bytes_in_background(fixed_->data.get(), stage.on_device.get(), offset, compute_);
  stage.taken.record(compute_);
  return loaded;
}

}  // namespace lockstep
