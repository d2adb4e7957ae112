// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/arithmetic.h"
#include "kernels/elementwise.h"
#include "tensor/autograd.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

// A slot begins with a replica's loss and its rank's votes, so that they are averaged as gradients are, and
// cost no message of their own.
constexpr int64_t loss_element = 0;
constexpr int64_t first_vote = 1;
constexpr int64_t vote_kinds = 2;
static_assert(first_vote + vote_kinds <= BucketPlan::reserved);

std::string describe(const ParameterSpace& space) {
  std::string lines;
  for (const Parameter& parameter : space.parameters()) {
    lines += concat(parameter.name, " ", parameter.tensor.dtype(), parameter.tensor.shape());
    for (const std::string& other : parameter.other_names) lines += concat(" = ", other);
    lines += parameter.is_frozen ? " frozen\n" : "\n";
  }
  return lines;
}

/// The options that decide which collectives a step calls.
std::string describe(const DataParallelOptions& options) {
  return concat("replicas = ", options.replicas, "\naccumulate = ", options.accumulate,
                "\nreduction = ", options.reduction == Reduction::tree ? "tree" : "native",
                "\nexecution = ", name(options.execution), "\nbucket_bytes = ", options.bucket_bytes,
                "\nshared_memory = ", options.shared_memory, "\ntransport = ", name(options.transport),
                "\nloss scale = ", options.scaler ? options.scaler->state().scale : 1.0f, "\n");
}

}  // namespace

DataParallel::DataParallel(ParameterSpace& space, const World& world, Options options)
    : space_(space), communicator_(world.shared_communicator()), options_(options) {
  if (options_.replicas == 0) options_.replicas = world.size();
  expect(options_.accumulate >= 1, "accumulate is ", options_.accumulate);
  expect(space.values().dtype() == DType::f32, "parameters are ", space.values().dtype(), ", not f32");
  expect(!options_.scaler || &options_.scaler->space() == &space_, "the GradScaler is of another space");
  require_equal_on_all_ranks(*communicator_, "the model's parameters", describe(space));
  require_equal_on_all_ranks(*communicator_, "the options of data parallelism", describe(options_));

  segments_ = space.segments(world.size());
  const BucketPlan buckets(space, world.size(), options_.bucket_bytes);
  reducer_ = std::make_unique<GradientReducer>(communicator_, buckets, options_, space.stream());
  copy_first_ranks_values();
  make_report();
  votes_ = full({vote_kinds}, 0.0, DType::f32, space.stream());
  for (int slot = 0; slot < reducer_->plan().slots; ++slot)
    gradients_.push_back(reserved(slot, BucketPlan::reserved, {space.trainable_elements()}));
  is_ready_.resize(space.parameters().size());
  missing_in_bucket_.resize(buckets.buckets.size());
  // Last, because a constructor that throws has no destructor to take the hooks back.
  for (size_t p = 0; p < is_ready_.size(); ++p)
    if (const Parameter& parameter = space.parameters()[p]; !parameter.is_frozen)
      leaf_gradient(parameter.tensor).ready = [this, p] { on_ready(p); };
}

DataParallel::~DataParallel() {
  for (const Parameter& parameter : space_.parameters())
    if (!parameter.is_frozen) leaf_gradient(parameter.tensor).ready = nullptr;
}

void DataParallel::copy_first_ranks_values() {
  const MemoryScope scope("parameters");
  if (segments_.size() > 1) {
    space_.move_values(reducer_->allocate(space_.elements(), false));
    release_cached_memory(space_.stream());  // where they were
  }
  constexpr int64_t piece_bytes = int64_t{64} << 20;
  std::byte* const values = static_cast<std::byte*>(space_.values().view().data);
  const int64_t bytes = space_.elements() * 4;
  const Stream& stream = space_.stream();
  if (device_of(stream) == Device::cpu) return communicator_->broadcast(values, bytes, 0);
  const std::shared_ptr<std::byte> on_host = allocate_pinned(std::min(bytes, piece_bytes));
  for (int64_t begin = 0; begin < bytes; begin += piece_bytes) {
    const int64_t size = std::min(piece_bytes, bytes - begin);
    copy_bytes(on_host.get(), cpu_stream(), values + begin, stream, size);
    communicator_->broadcast(on_host.get(), size, 0);
    copy_bytes(values + begin, stream, on_host.get(), cpu_stream(), size);
  }
}

void DataParallel::make_report() {
  constexpr int64_t reserved = BucketPlan::reserved, floats_a_block = sizeof(double) / sizeof(float);
  const int64_t blocks = space_.trainable_elements() / ParameterSpace::block;
  const auto memory = reducer_->allocate(reserved + floats_a_block * blocks, false);
  report_ = Tensor(memory, 0, {reserved + floats_a_block * blocks}, DType::f32);
  squares_ = Tensor(memory, reserved * 4, {blocks}, DType::f64);
  const auto place = [](int64_t element) {
    return reserved + floats_a_block * element / ParameterSpace::block;
  };
  for (const std::vector<Range>& segments : segments_) {
    report_owned_.emplace_back();
    if (report_owned_.size() == 1) report_owned_.back().push_back({0, reserved});
    for (const Range& range : segments)
      report_owned_.back().push_back({place(range.begin), place(range.end)});
  }
}

void DataParallel::count_down(int bucket) {
  if (micro_batches_done_ % options_.accumulate != options_.accumulate - 1) return;
  if (--missing_in_bucket_[static_cast<size_t>(bucket)] == 0)
    reducer_->complete(bucket, micro_batches_done_ / options_.accumulate);
}

void DataParallel::on_ready(size_t parameter) {
  const Parameter& ready = space_.parameters()[parameter];
  expect(!is_ready_[parameter], ready.name, " became ready twice in one backward");
  is_ready_[parameter] = true;
  const auto [first, end] = reducer_->buckets().buckets_of(ready.place);
  for (int bucket = first; bucket < end; ++bucket) count_down(bucket);
}

Tensor DataParallel::reserved(int slot, int64_t element, const Shape& shape) const {
  return {reducer_->storage(), (slot * reducer_->buckets().elements + element) * 4, shape, DType::f32};
}

/// The mean over a replica's micro-batches, added up from left to right.
void DataParallel::write_loss(const Tensor& loss, int slot, int micro) const {
  expect(loss && loss.size() == 1 && loss.dtype() == DType::f32, "the loss of a replica is one f32 number");
  const View sum = reserved(slot, loss_element, {}).view();
  const View value{loss.view().data, {}, DType::f32};
  const Stream& stream = space_.stream();
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
  const int slot = reducer_->begin(micro_batches_done_ / options_.accumulate);
  space_.set_gradients_are_whole(true);
  space_.bind_gradients(gradients_[static_cast<size_t>(slot)], micro > 0);
  std::fill(missing_in_bucket_.begin(), missing_in_bucket_.end(), 0);
  ++missing_in_bucket_[0];  // the reserved elements
  for (size_t p = 0; p < is_ready_.size(); ++p) {
    is_ready_[p] = space_.parameters()[p].is_frozen;
    if (is_ready_[p]) continue;
    const auto [first, end] = reducer_->buckets().buckets_of(space_.parameters()[p].place);
    for (int bucket = first; bucket < end; ++bucket) ++missing_in_bucket_[static_cast<size_t>(bucket)];
  }

  write_loss(loss, slot, micro);
  copy(votes_, reserved(slot, first_vote, votes_.shape()));
  count_down(0);
  const double factor = 1.0 / options_.accumulate;
  options_.scaler ? options_.scaler->backward(loss, factor) : lockstep::backward(loss, factor);

  const auto unused = std::find(is_ready_.begin(), is_ready_.end(), false);
  expect(unused == is_ready_.end(), "the loss does not depend on the parameter ",
         unused == is_ready_.end()
             ? ""
             : space_.parameters()[static_cast<size_t>(unused - is_ready_.begin())].name,
         ": every parameter needs a gradient in every backward");
  ++micro_batches_done_;
}

void DataParallel::end_step(bool everything) {
  expect(micro_batches_done_ == owed(), "wait() after ", micro_batches_done_, " of ", owed(),
         " backward() calls");
  reducer_->finish(everything);
  space_.bind_gradients(gradients_[0]);
  micro_batches_done_ = 0;
  updates_by_owners_ = is_scattered_ = !everything;
}

void DataParallel::finish() { end_step(true); }

float DataParallel::wait() {
  finish();
  const auto loss = static_cast<float>(item(mean_loss()));
  reducer_->check();
  return loss;
}

void DataParallel::step(Optimizer& optimizer, double learning_rate, double max_norm) {
  if (options_.scaler) optimizer.count_on_device();
  optimizer.prepare(learning_rate);
  update(optimizer, max_norm);
}

void DataParallel::update(Optimizer& optimizer, double max_norm) {
  expect(&optimizer.space() == &space_, "the optimizer updates another space");
  expect(!options_.scaler || optimizer.counts_on_device(),
         "a GradScaler may skip steps: the optimizer has to count_on_device() before it prepares one");
  end_step(false);
  share_states(optimizer);
  const std::vector<Range>& mine = segments_[rank()];
  const Tensor told = report_.slice(0, BucketPlan::reserved);
  const Tensor kept = reserved(0, 0, {BucketPlan::reserved});
  copy(kept, told);
  square_blocks(space_, mine, squares_);
  reducer_->gather(report_.data<float>(), report_owned_);
  copy(told, kept);
  // From the same numbers on every rank, so that all skip a step or none.
  norm_ = norm_of_blocks(squares_, max_norm, options_.scaler ? options_.scaler->scale() : Tensor());
  optimizer.update(mine, norm_.factor);
  if (options_.scaler) options_.scaler->update(norm_.factor);
  reducer_->gather(space_.values().data<float>(), segments_);
  if (segments_.size() > 1) space_.refresh_copies();
  space_.set_gradients_are_whole(false);
}

void DataParallel::gather_gradients() {
  expect(
      !options_.scaler,
      "gradients are multiplied by a scale that is gone by now: wait() and GradScaler::unscale() make them, "
      "before the step");
  if (is_scattered_) reducer_->gather(reducer_->slot(0), reducer_->buckets().owned);
  is_scattered_ = false;
  space_.set_gradients_are_whole(true);
}

void DataParallel::share_states(Optimizer& optimizer) {
  if (segments_.size() == 1) return;
  optimizer.set_states_are_whole(false);
  auto& states = optimizer.states();
  const auto is_known = [](const Tensor& known, const auto& state) { return known.id() == state.flat.id(); };
  if (std::ranges::equal(known_states_, states, is_known)) return;
  const MemoryScope scope("optimizer");
  known_states_.clear();
  states_are_shared_ = true;
  for (auto& state : states) {
    const auto memory = states_are_shared_ ? reducer_->allocate(state.flat.size(), true) : nullptr;
    states_are_shared_ = memory != nullptr;
    if (memory) {
      const Tensor shared(memory, 0, state.flat.shape(), DType::f32);
      for (const Range& range : segments_[rank()])
        copy(state.flat.slice(range.begin, range.end), shared.slice(range.begin, range.end));
      state.flat = shared;
    }
    known_states_.push_back(state.flat);
  }
  release_cached_memory(space_.stream());
  communicator_->barrier();
}

void DataParallel::gather_states(Optimizer& optimizer) {
  share_states(optimizer);
  if (states_are_shared_) return;
  for (const auto& state : optimizer.states()) reducer_->gather(state.flat.data<float>(), segments_, 0);
}

Tensor DataParallel::mean_loss() const { return reserved(0, loss_element, {}); }

void DataParallel::vote(Vote what, bool wanted) {
  const auto element = static_cast<int64_t>(what);
  fill(votes_.slice(element, element + 1), wanted ? 1.0 : 0.0);
}

Tensor DataParallel::votes() const { return reserved(0, first_vote, {vote_kinds}); }

void DataParallel::replay(const Graph& step) {
  reducer_->replay([&step] { step.launch(); });
  is_scattered_ = updates_by_owners_;
  space_.set_gradients_are_whole(!is_scattered_);
}

}  // namespace lockstep
