// SPDX-License-Identifier: Apache-2.0
#include "dist/gradient_reducer.h"

#include "core/error.h"
#include "core/log.h"
#include "dist/device_reducer.h"
#include "dist/host_reducer.h"
#include "dist/nccl_reducer.h"
#include "dist/staged_reducer.h"
#include "kernels/fold.h"

namespace lockstep {

GradientReducer::GradientReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan,
                                 Options options)
    : communicator_(std::move(communicator)),
      plan_(plan),
      options_(options),
      slot_plan_(options.replicas, communicator_->size(), communicator_->rank()),
      last_fold_(options.replicas, communicator_->size(), communicator_->size() > 1) {}

void GradientReducer::merge(const Stream& stream, const Bucket& bucket, int k) const {
  for (int i = 0; i < slot_plan_.additions[static_cast<size_t>(k)]; ++i) {
    const int right = slot_of(k) - i;
    float* left = slot(right - 1, bucket);
    fold(stream, {0, 1, Fold::add}, {left, slot(right, bucket)}, left, bucket.end - bucket.begin, 1.0f);
  }
}

void GradientReducer::add_pending(const Stream& stream, const Bucket& bucket) const {
  for (int i = 1; i < slot_plan_.pending; ++i)
    fold(stream, {0, 1, Fold::add}, {slot(0, bucket), slot(i, bucket)}, slot(0, bucket),
         bucket.end - bucket.begin, 1.0f);
}

void GradientReducer::fold(const Stream& stream, const std::vector<int>& program,
                           const std::vector<const float*>& inputs, float* out, int64_t count, float scale) {
  if (count == 0) return;
  Fold kernel{.inputs = {}, .program = program, .y = {out, {count}, DType::f32}, .scale = scale};
  // A view does not say what is only read.
  for (const float* input : inputs) kernel.inputs.push_back({const_cast<float*>(input), {count}, DType::f32});
  launch(stream, kernel);
}

std::pair<int64_t, int64_t> GradientReducer::segment(int64_t count, int rank) const {
  const int ranks = communicator_->size();
  const int64_t lines = count / BucketPlan::alignment;
  return {lines * rank / ranks * BucketPlan::alignment, lines * (rank + 1) / ranks * BucketPlan::alignment};
}

void GradientReducer::finish_segment(const Stream& stream, const Bucket& bucket,
                                     const std::vector<const float*>& inputs) const {
  const auto [begin, end] = segment(bucket.end - bucket.begin, communicator_->rank());
  fold(stream, last_fold_.program, inputs, slot(0, bucket) + begin, end - begin, mean_factor());
}

int64_t GradientReducer::arriving_elements(const Bucket& bucket) const {
  const int rank = communicator_->rank();
  const auto [begin, end] = segment(bucket.end - bucket.begin, rank);
  int64_t inputs = 0;
  for (int peer = 0; peer < communicator_->size(); ++peer)
    if (peer != rank) inputs += last_fold_.inputs_of_rank[static_cast<size_t>(peer)];
  return inputs * (end - begin);
}

GradientReducer::SegmentExchange GradientReducer::exchange_of(const Bucket& bucket, float* arrived) const {
  const auto message = [](int peer, float* begin, float* end) {
    return Message{peer, reinterpret_cast<std::byte*>(begin), (end - begin) * 4};
  };
  const int rank = communicator_->rank();
  const int64_t count = bucket.end - bucket.begin;
  const auto [begin, end] = segment(count, rank);
  SegmentExchange exchange;
  for (int peer = 0; peer < communicator_->size(); ++peer) {
    const auto [from, to] = segment(count, peer);
    for (int i = 0; i < last_fold_.inputs_of_rank[static_cast<size_t>(peer)]; ++i) {
      exchange.inputs.push_back(peer == rank ? slot(i, bucket) + begin : arrived);
      if (peer == rank) continue;
      exchange.receives.push_back(message(peer, arrived, arrived + (end - begin)));
      arrived += end - begin;
    }
    if (peer == rank) continue;
    for (int i = 0; i < slot_plan_.pending; ++i)
      exchange.sends.push_back(message(peer, slot(i, bucket) + from, slot(i, bucket) + to));
    exchange.results.push_back(message(peer, slot(0, bucket) + begin, slot(0, bucket) + end));
    exchange.others.push_back(message(peer, slot(0, bucket) + from, slot(0, bucket) + to));
  }
  return exchange;
}

std::unique_ptr<GradientReducer> make_gradient_reducer(std::shared_ptr<Communicator> communicator,
                                                       const BucketPlan& plan,
                                                       GradientReducer::Options options,
                                                       const Stream& stream) {
  if (device_of(stream) == Device::cpu)
    return std::make_unique<HostReducer>(std::move(communicator), plan, options);
  const int device = gpu_of(stream);
  if (options.transport == Transport::automatic) {
    const TransportFacts facts = gather_transport_facts(*communicator, device);
    options.transport = choose_transport(facts);
    if (options.transport == Transport::staged && communicator->rank() == 0)
      log_warning(concat("gradients travel through the memory of the host, because ",
                         facts.shares_gpu ? "ranks share a GPU" : "this build has no NCCL"));
  }
  switch (options.transport) {
    case Transport::nccl:
      return std::make_unique<NcclReducer>(std::move(communicator), plan, options, stream);
    case Transport::staged:
      return std::make_unique<StagedReducer>(std::move(communicator), plan, options, stream);
    default:
      expect(communicator->size() == 1, communicator->size(), " ranks cannot reduce alone");
      return std::make_unique<DeviceReducer>(std::move(communicator), plan, options, stream);
  }
}

}  // namespace lockstep
