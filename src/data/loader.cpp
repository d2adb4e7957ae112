// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/loader.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/spans.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

Tensor make_batch_memory(const SampleField& field, int64_t samples, const Stream& stream) {
  Shape shape{samples};
  for (int64_t extent : field.shape) shape.append(extent);
  return empty(shape, field.dtype, stream);
}

Batch collect(const Dataset& dataset, std::span<const int64_t> indices, const Stream& stream,
              std::optional<int64_t> epoch) {
  const SampleField input = dataset.input();
  const SampleField target = dataset.target();
  const auto samples = static_cast<int64_t>(indices.size());
  const Stream& made_on = device_of(stream) == Device::cpu ? stream : cpu_stream();
  Batch batch{.inputs = make_batch_memory(input, samples, made_on),
              .targets = make_batch_memory(target, samples, made_on),
              .samples = samples};
  if (mode_of(stream).is_dry) return batch;  // there is no memory to write to
  auto* inputs = static_cast<std::byte*>(batch.inputs.view().data);
  auto* targets = static_cast<std::byte*>(batch.targets.view().data);
  for (const int64_t index : indices) {
    if (epoch)
      dataset.fetch_in_epoch(*epoch, index, inputs, targets);
    else
      dataset.fetch(index, inputs, targets);
    inputs += input.bytes();
    targets += target.bytes();
  }
  batch.inputs = to_stream(batch.inputs, stream);
  batch.targets = to_stream(batch.targets, stream);
  return batch;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const Options& options)
    : dataset_(std::move(dataset)),
      options_(options),
      stream_(cpu_stream()),
      sampler_({.samples = dataset_->size(),
                .replicas = options.replicas,
                .shuffle = options.shuffle,
                .seed = options.seed}) {
  if (options_.local_parts.empty())
    for (const int replica : options.local_replicas)
      for (int slice = 0; slice < options.parts; ++slice) options_.local_parts.push_back({replica, slice});
  for (const auto& [replica, slice] : options_.local_parts)
    expect(replica >= 0 && replica < options.replicas && slice >= 0 && slice < options.parts, "micro-batch ",
           slice, " of replica ", replica, " is not one of ", options.replicas, " replicas with ",
           options.parts, " micro-batches each");
  require(options.batch_size > 0, option_name("batch_size"), " = ", options.batch_size,
          ": at least 1 is needed");
  const int64_t rounding = options.whole_batches ? 0 : options.batch_size - 1;
  steps_per_epoch_ = (sampler_.samples_per_replica() + rounding) / options.batch_size;
  require(steps_per_epoch_ > 0, option_name("batch_size"), " = ", options.batch_size, " is more than the ",
          sampler_.samples_per_replica(), " samples of each replica (", option_name("replicas"), " = ",
          options.replicas, ")");
  seek(0);
  if (options.prefetch) worker_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

Step Loader::next() {
  const SpanRange span("wait for data");
  if (!options_.prefetch && task_.valid()) std::exchange(task_, {})();
  Step step = prepared_.get();
  seek(step.index + 1);
  return step;
}

void Loader::seek(int64_t step) {
  expect(step >= 0, "step ", step);
  const std::lock_guard lock(mutex_);
  task_ = std::packaged_task<Step()>([this, step] { return prepare(step); });
  prepared_ = task_.get_future().share();
  changed_.notify_all();
}

void Loader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return task_.valid(); }) && !stop.stop_requested()) {
    auto task = std::exchange(task_, {});
    lock.unlock();
    task();
    lock.lock();
  }
}

Step Loader::prepare(int64_t index) {
  const SpanRange span("load", SpanRow::data, index + 1);
  const MemoryScope scope("batches");
  sampler_.set_epoch(index / steps_per_epoch_);
  Step step{.index = index, .epoch = sampler_.epoch()};
  const int64_t begin = index % steps_per_epoch_ * options_.batch_size;
  const int64_t end = std::min(begin + options_.batch_size, sampler_.samples_per_replica());
  for (const BatchSlice& slice : options_.local_parts)
    step.batches.push_back(prepare(slice, begin, end, step.epoch));
  if (const auto slice = options_.extra ? options_.extra(index) : std::nullopt)
    step.extra_batch = prepare(*slice, begin, end, step.epoch);
  step.inverse_count = inverse_count(begin, end);
  return step;
}

/// Returns Step::inverse_count for the positions [begin, end) of all replicas. If all micro-batches have n
/// targets, it is exactly 1 / n: a quotient of integers is rounded once.
std::optional<double> Loader::inverse_count(int64_t begin, int64_t end) const {
  const int64_t batches = options_.replicas * options_.parts;
  const int64_t taken = (end - begin) / options_.parts * options_.parts;
  int64_t targets = 0;
  for (int64_t replica = 0; replica < options_.replicas; ++replica)
    for (int64_t position = begin; position < begin + taken; ++position) {
      const auto of_sample = dataset_->counted_targets(sampler_.index(replica, position));
      if (!of_sample) return std::nullopt;
      targets += *of_sample;
    }
  return targets == 0 ? 0.0 : static_cast<double>(batches) / static_cast<double>(targets);
}

/// Returns one micro-batch of the positions [begin, end) of a replica.
Batch Loader::prepare(const BatchSlice& slice, int64_t begin, int64_t end, int64_t epoch) {
  const int64_t samples = (end - begin) / options_.parts;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < samples; ++i)
    indices.push_back(sampler_.index(slice.replica, begin + slice.index * samples + i));
  Batch batch = collect(*dataset_, indices, stream_, epoch);
  batch.replica = slice.replica;
  batch.first_sample = slice.replica * options_.batch_size + slice.index * samples;
  return batch;
}

}  // namespace lockstep
