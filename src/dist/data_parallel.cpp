// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "kernels/elementwise.h"
#include "tensor/autograd.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

// The flat space begins with a replica's loss and its rank's votes, so that they are averaged as the
// gradients are, and cost no message of their own.
constexpr int64_t loss_element = 0;
constexpr int64_t first_vote = 1;
constexpr int64_t vote_kinds = 2;
constexpr int64_t reserved_elements = first_vote + vote_kinds;
constexpr int bucket_of_reserved = 0;

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
                "\nbucket_bytes = ", options.bucket_bytes, "\nshared_memory = ", options.shared_memory,
                "\ntransport = ", name(options.transport), "\n");
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
  plan_ = std::make_unique<BucketPlan>(sizes, options_.bucket_bytes, reserved_elements);
  const Stream stream = parameters_.empty() ? current_stream() : parameters_[0].tensor.stream();
  reducer_ = make_gradient_reducer(communicator_, *plan_,
                                   {.replicas = options_.replicas,
                                    .reduction = options_.reduction,
                                    .overlap = options_.overlap,
                                    .shared_memory = options_.shared_memory,
                                    .transport = options_.transport},
                                   stream);
  move_values(stream);
  votes_ = full({vote_kinds}, 0.0, DType::f32, stream);
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

/// Moves the parameters into one block, and rank 0's values into it on every rank.
void DataParallel::move_values(const Stream& stream) {
  const MemoryScope scope("parameters");
  const int64_t bytes = plan_->elements * 4;
  const auto values = Storage::make(bytes, stream);
  launch(stream, Fill{.y = {values->data.get(), {plan_->elements}, DType::f32}});
  for (size_t p = 0; p < parameters_.size(); ++p) {
    Tensor tensor = parameters_[p].tensor;
    expect(gpu_of(tensor.stream()) == gpu_of(stream), parameters_[p].name, " is not on the device of ",
           parameters_[0].name);
    tensor.move_to(values, plan_->offsets[p] * 4);
  }
  if (device_of(stream) == Device::cpu) return communicator_->broadcast(values->data.get(), bytes, 0);
  const std::shared_ptr<std::byte> on_host = allocate_pinned(bytes);
  copy_bytes(on_host.get(), cpu_stream(), values->data.get(), stream, bytes);
  communicator_->broadcast(on_host.get(), bytes, 0);
  copy_bytes(values->data.get(), stream, on_host.get(), cpu_stream(), bytes);
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

void DataParallel::count_down(int bucket) {
  if (micro_batches_done_ % options_.accumulate != options_.accumulate - 1) return;
  if (--missing_in_bucket_[static_cast<size_t>(bucket)] == 0)
    reducer_->complete(bucket, micro_batches_done_ / options_.accumulate);
}

void DataParallel::on_ready(int parameter) {
  const auto p = static_cast<size_t>(parameter);
  expect(!is_ready_[p], parameters_[p].name, " became ready twice in one backward");
  is_ready_[p] = true;
  count_down(plan_->bucket_of[p]);
}

View DataParallel::reserved(int slot, int64_t element, const Shape& shape) const {
  return {reducer_->storage()->data.get() + (slot * plan_->elements + element) * 4, shape, DType::f32};
}

/// The mean over a replica's micro-batches, added up from left to right.
void DataParallel::write_loss(const Tensor& loss, int slot, int micro) const {
  const Stream& stream = reducer_->storage()->stream;
  expect(loss && loss.size() == 1 && loss.dtype() == DType::f32, "the loss of a replica is one f32 number");
  const View sum = reserved(slot, loss_element, {});
  const View value{loss.view().data, {}, DType::f32};
  if (micro == 0)
    launch(stream, Copy{.x = value, .y = sum});
  else
    launch(stream, Add{.a = sum, .b = value, .y = sum});
  if (micro > 0 && micro == options_.accumulate - 1)
    launch(stream, Scale{.x = sum, .y = sum, .factor = 1.0 / options_.accumulate});
}

void DataParallel::backward(const Tensor& loss) {
  expect(micro_batches_done_ < owed(), "backward() was called more than ", owed(),
         " times in this step; call wait() after the last");
  const int micro = micro_batches_done_ % options_.accumulate;
  const int slot = reducer_->slot_of(micro_batches_done_ / options_.accumulate);
  bind_gradients(slot, micro > 0);
  std::fill(is_ready_.begin(), is_ready_.end(), false);
  for (size_t bucket = 0; bucket < missing_in_bucket_.size(); ++bucket)
    missing_in_bucket_[bucket] = static_cast<int>(plan_->buckets[bucket].parameters.size());
  ++missing_in_bucket_[bucket_of_reserved];

  write_loss(loss, slot, micro);
  launch(votes_.stream(), Copy{.x = votes_.view(), .y = reserved(slot, first_vote, votes_.shape())});
  count_down(bucket_of_reserved);
  lockstep::backward(loss, 1.0 / options_.accumulate);

  const auto unused = std::find(is_ready_.begin(), is_ready_.end(), false);
  expect(unused == is_ready_.end(), "the loss does not depend on the parameter ",
         unused == is_ready_.end() ? "" : parameters_[static_cast<size_t>(unused - is_ready_.begin())].name,
         ": every parameter needs a gradient in every backward");
  ++micro_batches_done_;
}

void DataParallel::finish() {
  expect(micro_batches_done_ == owed(), "wait() after ", micro_batches_done_, " of ", owed(),
         " backward() calls");
  reducer_->finish();
  bind_gradients(0, false);
  micro_batches_done_ = 0;
}

Tensor DataParallel::mean_loss() const { return {reducer_->storage(), loss_element * 4, {}, DType::f32}; }

void DataParallel::vote(Vote what, bool wanted) {
  const auto element = static_cast<int64_t>(what);
  fill(votes_.slice(element, element + 1), wanted ? 1.0 : 0.0);
}

Tensor DataParallel::votes() const { return {reducer_->storage(), first_vote * 4, {vote_kinds}, DType::f32}; }

float DataParallel::wait() {
  finish();
  const auto loss = static_cast<float>(item(mean_loss()));
  reducer_->check();
  return loss;
}

void DataParallel::replay(const Graph& step) {
  reducer_->replay([&step] { step.launch(); });
}

}  // namespace lockstep
