// SPDX-License-Identifier: Apache-2.0
#include "dist/nccl_reducer.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/gpu.h"
#include "core/graph.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

/// Memory for this rank's slots.
std::shared_ptr<std::byte> slot_memory(NcclCommunicator& nccl, const Communicator& communicator,
                                       const BucketPlan& plan, int replicas, const Stream& stream) {
  const SlotPlan slots(replicas, communicator.size(), communicator.rank());
  const MemoryScope scope("gradients");
  return nccl.allocate(slots.slots * plan.elements * 4, stream);
}

}  // namespace

NcclReducer::NcclReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options,
                         const Stream& stream)
    : NcclReducer(connect_nccl(*communicator, gpu_of(stream)), communicator, plan, options, stream) {}

NcclReducer::NcclReducer(std::unique_ptr<NcclCommunicator> nccl, std::shared_ptr<Communicator> communicator,
                         const BucketPlan& plan, Options options, const Stream& stream)
    : DeviceReducer(communicator, plan, options, stream,
                    slot_memory(*nccl, *communicator, plan, options.replicas, stream)),
      nccl_(std::move(nccl)),
      communication_(make_gpu_stream(gpu_of(stream), true)),
      counter_(allocate(2 * sizeof(float), stream)),
      counted_here_(allocate_pinned(sizeof(float))) {
  int64_t most = 0;
  for (const Bucket& bucket : plan.buckets) most = std::max(most, arriving_elements(bucket));
  arrived_ = nccl_->allocate(most * 4, communication_);
  const View count{counter_.get(), {1}, DType::f32};
  const View one{counter_.get() + sizeof(float), {1}, DType::f32};
  launch(stream, Fill{.y = count, .value = 0.0});
  launch(stream, Fill{.y = one, .value = 1.0});
  reinterpret_cast<float&>(*counted_here_) = 0.0f;
  watchdog_ = std::make_unique<Watchdog>(
      *communicator_, Watchdog::Transport{.background_error = [this] { return nccl_->background_error(); },
                                          .break_off = [this] { nccl_->break_off(); }});
}

void NcclReducer::reduce(int index) {
  const Bucket& bucket = bucket_at(index);
  written_.record(stream());
  written_.hold(communication_);
  if (index == 0) count_reduction();
  if (options_.reduction == Reduction::native)
    reduce_natively(bucket);
  else
    reduce_by_tree(bucket);
}

void NcclReducer::reduce_by_tree(const Bucket& bucket) {
  const bool has_peers = communicator_->size() > 1;
  if (has_peers) merge(communication_, bucket, replicas().size() - 1);
  const SegmentExchange exchange = exchange_of(bucket, reinterpret_cast<float*>(arrived_.get()));
  if (has_peers)
    watchdog_->watch("nccl_exchange", bytes_of(exchange.sends), communication_,
                     [&] { nccl_->exchange(exchange.sends, exchange.receives, communication_); });
  finish_segment(communication_, bucket, exchange.inputs);
  if (has_peers)
    watchdog_->watch("nccl_gather", bytes_of(exchange.results), communication_,
                     [&] { gather(bucket, exchange); });
}

void NcclReducer::gather(const Bucket& bucket, const SegmentExchange& exchange) {
  const int64_t count = bucket.end - bucket.begin;
  const int64_t ranks = communicator_->size();
  if (count % (ranks * BucketPlan::alignment) == 0)
    nccl_->all_gather(slot(0, bucket), count / ranks, communication_);
  else
    nccl_->exchange(exchange.results, exchange.others, communication_);
}

void NcclReducer::reduce_natively(const Bucket& bucket) {
  merge(communication_, bucket, replicas().size() - 1);
  add_pending(communication_, bucket);
  const int64_t count = bucket.end - bucket.begin;
  watchdog_->watch("nccl_all_reduce", count * 4, communication_,
                   [&] { nccl_->all_reduce(slot(0, bucket), count, communication_); });
  fold(communication_, {0}, {slot(0, bucket)}, slot(0, bucket), count, mean_factor());
}

void NcclReducer::join() {
  if (plan_.buckets.empty()) return;
  reduced_.record(communication_);
  reduced_.hold(stream());
}

void NcclReducer::finish() {
  check();
  DeviceReducer::finish();
  if (!is_recording_graph()) ++steps_;
}

void NcclReducer::count_reduction() {
  const View count{counter_.get(), {1}, DType::f32};
  const View one{counter_.get() + sizeof(float), {1}, DType::f32};
  launch(communication_, Add{.a = count, .b = one, .y = count});
  copy_bytes_in_background(counted_here_.get(), counter_.get(), sizeof(float), communication_);
}

void NcclReducer::replay(const std::function<void()>& launch) {
  ++steps_;
  const auto has_begun = [this, step = static_cast<float>(steps_)] {
    return std::atomic_ref(reinterpret_cast<float&>(*counted_here_)).load() >= step;
  };
  watchdog_->watch("recorded_step", plan_.elements * 4, stream(), launch, has_begun);
}

}  // namespace lockstep
