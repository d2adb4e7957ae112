// SPDX-License-Identifier: Apache-2.0
#include "dist/device_reducer.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

std::shared_ptr<std::byte> gradient_memory(int64_t bytes, const Stream& stream) {
  const MemoryScope scope("gradients");
  return allocate(bytes, stream);
}

}  // namespace

DeviceReducer::DeviceReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan,
                             Options options, const Stream& stream)
    : DeviceReducer(std::move(communicator), plan, options, stream, nullptr) {}

DeviceReducer::DeviceReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan,
                             Options options, const Stream& stream, std::shared_ptr<std::byte> memory)
    : GradientReducer(std::move(communicator), plan, options), ready_(plan.buckets.size(), false) {
  if (!memory) memory = gradient_memory(slots_bytes(), stream);
  storage_ = std::make_shared<Storage>(Storage{std::move(memory), slots_bytes(), stream});
  // What lies between parameters is reduced with them, so it must be numbers.
  launch(stream, Fill{.y = {storage_->data.get(), {slots_bytes() / 4}, DType::f32}});
}

void DeviceReducer::complete(int bucket, int k) {
  if (k + 1 < replicas().size()) return merge(stream(), bucket_at(bucket), k);
  ready_[static_cast<size_t>(bucket)] = true;
  while (next_ < static_cast<int>(ready_.size()) && ready_[static_cast<size_t>(next_)]) reduce(next_++);
}

void DeviceReducer::finish() {
  const auto missing = std::find(ready_.begin(), ready_.end(), false);
  expect(missing == ready_.end(), "bucket ", missing - ready_.begin(), " was never completed");
  join();
  std::fill(ready_.begin(), ready_.end(), false);
  next_ = 0;
}

void DeviceReducer::reduce(int index) {
  const Bucket& bucket = bucket_at(index);
  const int64_t count = bucket.end - bucket.begin;
  std::vector<const float*> inputs;
  for (int i = 0; i < last_fold_.inputs_of_rank[0]; ++i) inputs.push_back(slot(i, bucket));
  fold(stream(), last_fold_.program, inputs, slot(0, bucket), count, mean_factor());
}

}  // namespace lockstep
