// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tensor/autograd.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> unique;
  std::set<const void*> seen;
  for (const NamedTensor& parameter : parameters) {
    expect(parameter.tensor.dtype() == DType::f32 && parameter.tensor.requires_grad(), parameter.name,
           " is not an fp32 leaf that requires a gradient");
    if (seen.insert(parameter.tensor.id()).second) unique.push_back(parameter);
  }
  return unique;
}

std::string describe(const std::vector<NamedTensor>& parameters) {
  std::string lines;
  for (const NamedTensor& parameter : parameters)
    lines += concat(parameter.name, " ", parameter.tensor.dtype(), parameter.tensor.shape(), "\n");
  return lines;
}

/// The options that decide which collectives a step calls.
std::string describe(const DataParallel::Options& options) {
  return concat("replicas = ", options.replicas, "\naccumulate = ", options.accumulate,
                "\nreduction = ", options.reduction == Reduction::tree ? "tree" : "native",
                "\nbucket_bytes = ", options.bucket_bytes, "\nshared_memory = ", options.shared_memory, "\n");
}

}  // namespace

DataParallel::DataParallel(const std::vector<NamedTensor>& parameters, const World& world, Options options)
    : communicator_(world.shared_communicator()),
      options_(options),
      parameters_(without_repeats(parameters)) {
  if (options_.replicas == 0) options_.replicas = world.size();
  expect(options_.accumulate >= 1, "accumulate is ", options_.accumulate);
  require_equal_on_all_ranks(*communicator_, "the model's parameters", describe(parameters_));
  require_equal_on_all_ranks(*communicator_, "the options of data parallelism", describe(options_));

  std::vector<int64_t> sizes;
  for (const NamedTensor& parameter : parameters_) sizes.push_back(parameter.tensor.size());
  plan_ = std::make_unique<BucketPlan>(sizes, options_.bucket_bytes);
  reducer_ =
      std::make_unique<GradientReducer>(communicator_, *plan_,
                                        GradientReducer::Options{.replicas = options_.replicas,
                                                                 .reduction = options_.reduction,
                                                                 .overlap = options_.overlap,
                                                                 .shared_memory = options_.shared_memory});
  const MemoryScope scope("parameters");
  const int64_t flat_bytes = plan_->elements * 4;
  const auto values = Storage::make(flat_bytes, current_stream());
  std::fill_n(values->data.get(), flat_bytes, std::byte{0});
  for (size_t p = 0; p < parameters_.size(); ++p) {
    Tensor tensor = parameters_[p].tensor;
    tensor.move_to(values, plan_->offsets[p] * 4);
  }
  communicator_->broadcast(values->data.get(), flat_bytes, 0);

  gradients_.resize(static_cast<size_t>(reducer_->slots()));
  for (size_t slot = 0; slot < gradients_.size(); ++slot)
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const int64_t element = static_cast<int64_t>(slot) * plan_->elements + plan_->offsets[p];
      gradients_[slot].emplace_back(reducer_->storage(), element * 4, parameters_[p].tensor.shape(),
                                    DType::f32);
    }
  is_ready_.resize(parameters_.size());
  missing_in_bucket_.resize(plan_->buckets.size());
  // Last, because a constructor that throws has no destructor to take the hooks back.
  for (size_t p = 0; p < parameters_.size(); ++p)
    leaf_gradient(parameters_[p].tensor).ready = [this, p] { on_ready(static_cast<int>(p)); };
}

DataParallel::~DataParallel() {
  for (const NamedTensor& parameter : parameters_) leaf_gradient(parameter.tensor).ready = nullptr;
}

void DataParallel::bind_gradients(int slot, bool accumulate) {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    LeafGradient& leaf = leaf_gradient(parameters_[p].tensor);
    leaf.buffer = gradients_[static_cast<size_t>(slot)][p];
    leaf.accumulate = accumulate;
  }
}

void DataParallel::on_ready(int parameter) {
  const auto p = static_cast<size_t>(parameter);
  expect(!is_ready_[p], parameters_[p].name, " became ready twice in one backward");
  is_ready_[p] = true;
  if (micro_batches_done_ % options_.accumulate != options_.accumulate - 1) return;
  const int bucket = plan_->bucket_of[p];
  if (--missing_in_bucket_[static_cast<size_t>(bucket)] == 0)
    reducer_->complete(bucket, micro_batches_done_ / options_.accumulate);
}

void DataParallel::backward(const Tensor& loss) {
  const int owed = replicas().size() * options_.accumulate;
  expect(micro_batches_done_ < owed, "backward() was called more than ", owed,
         " times in this step; call wait() after the last");
  const int micro = micro_batches_done_ % options_.accumulate;
  bind_gradients(reducer_->slot_of(micro_batches_done_ / options_.accumulate), micro > 0);
  std::fill(is_ready_.begin(), is_ready_.end(), false);
  for (size_t bucket = 0; bucket < missing_in_bucket_.size(); ++bucket)
    missing_in_bucket_[bucket] = static_cast<int>(plan_->buckets[bucket].parameters.size());

  const float value = static_cast<float>(item(loss));
  lockstep::backward(loss, 1.0 / options_.accumulate);

  const auto unused = std::find(is_ready_.begin(), is_ready_.end(), false);
  expect(unused == is_ready_.end(), "the loss does not depend on the parameter ",
         unused == is_ready_.end() ? "" : parameters_[static_cast<size_t>(unused - is_ready_.begin())].name,
         ": every parameter needs a gradient in every backward");
  micro_loss_ = micro == 0 ? value : micro_loss_ + value;
  if (micro == options_.accumulate - 1)
    losses_.push_back(micro_loss_ / static_cast<float>(options_.accumulate));
  ++micro_batches_done_;
}

float DataParallel::wait() {
  const int owed = replicas().size() * options_.accumulate;
  expect(micro_batches_done_ == owed, "wait() after ", micro_batches_done_, " of ", owed,
         " backward() calls");
  reducer_->finish();
  bind_gradients(0, false);
  micro_batches_done_ = 0;

  const int ranks = communicator_->size();
  const size_t most = static_cast<size_t>((options_.replicas + ranks - 1) / ranks);
  std::vector<float> mine = std::exchange(losses_, {});
  mine.resize(most);
  std::vector<float> gathered(most * static_cast<size_t>(ranks));
  communicator_->all_gather(mine.data(), static_cast<int64_t>(most * sizeof(float)), gathered.data());
  std::vector<float> losses;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto first = gathered.begin() + static_cast<int64_t>(most) * rank;
    losses.insert(losses.end(), first, first + replicas_of(options_.replicas, ranks, rank).size());
  }
  return tree_sum(losses) * (1.0f / static_cast<float>(options_.replicas));
}

}  // namespace lockstep
