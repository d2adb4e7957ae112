// SPDX-License-Identifier: Apache-2.0
#include "train/batch_feeder.h"

#include <algorithm>
#include <cstring>

#include "core/gpu.h"
#include "core/memory.h"

namespace lockstep {
namespace {

/// What a tensor takes if its batch has that many samples; every tensor begins where 16-byte accesses do.
int64_t padded_bytes(const Tensor& tensor, int64_t samples) {
  return (tensor.view().bytes() / tensor.shape()[0] * samples + 255) / 256 * 256;
}

}  // namespace

BatchFeeder::BatchFeeder(const Stream& stream, int64_t most_samples)
    : compute_(stream), copies_(stream), most_samples_(most_samples) {
  if (device_of(stream) == Device::cuda) copies_ = make_gpu_stream(gpu_of(stream));
}

/// A run may begin with a short batch, so the first ones do not tell the size.
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
  if (device_of(compute_) == Device::cpu) return batches;
  reserve(batches);
  Stage& stage = stages_[static_cast<size_t>(loads_++ % 2)];
  stage.arrived.synchronize();
  std::vector<Batch> loaded = batches;
  int64_t offset = 0;
  const auto place = [&](Tensor& tensor) {
    const View view = tensor.view();
    expect(offset + view.bytes() <= bytes_, "a batch of ", view.shape, " is larger than was said");
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
