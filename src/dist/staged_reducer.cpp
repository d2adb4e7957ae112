// SPDX-License-Identifier: Apache-2.0
#include "dist/staged_reducer.h"

#include <cstring>

#include "core/clock.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/graph.h"

namespace lockstep {

StagedReducer::StagedReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan,
                             Options options, const Stream& stream)
    : DeviceReducer(communicator, plan, options, stream),
      on_host_(communicator, plan, options),
      copies_(make_gpu_stream(gpu_of(stream), true)),
      pinned_(allocate_pinned(slots_bytes())),
      written_(plan.buckets.size()),
      arrived_(plan.buckets.size()) {}

void StagedReducer::reduce(int index) {
  const Bucket& bucket = bucket_at(index);
  Event& written = written_[static_cast<size_t>(index)];
  written.record(stream());
  written.hold(copies_);
  const int64_t bytes = (bucket.end - bucket.begin) * 4;
  // The additions that the last replica makes possible are the host's.
  for (int i = 0; i <= slot_of(replicas().size() - 1); ++i)
    copy_bytes_in_background(pinned_.get() + (i * plan_.elements + bucket.begin) * 4, slot(i, bucket), bytes,
                             copies_);
  arrived_[static_cast<size_t>(index)].record(copies_);
}

void StagedReducer::finish() {
  expect(!is_recording_graph(), "gradients that travel through the host cannot be recorded in a graph");
  DeviceReducer::finish();
  if (!written_.empty()) written_.back().synchronize();  // up to here it is computation
  const auto begin = Clock::now();
  std::byte* const on_host = on_host_.storage()->data.get();
  const int last = replicas().size() - 1;
  for (size_t b = 0; b < arrived_.size(); ++b) {
    arrived_[b].synchronize();
    const Bucket& bucket = plan_.buckets[b];
    for (int i = 0; i <= slot_of(last); ++i) {
      const int64_t at = (i * plan_.elements + bucket.begin) * 4;
      std::memcpy(on_host + at, pinned_.get() + at, static_cast<size_t>((bucket.end - bucket.begin) * 4));
    }
    on_host_.complete(static_cast<int>(b), last);
  }
  on_host_.finish();
  std::memcpy(pinned_.get(), on_host, static_cast<size_t>(plan_.elements * 4));
  copy_bytes_in_background(storage_->data.get(), pinned_.get(), plan_.elements * 4, stream());
  exposed_seconds_ = seconds_since(begin);
}

}  // namespace lockstep
