// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/arithmetic.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "tensor/autograd.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

// A slot begins with the replica's loss and the rank's votes. So they are averaged like gradients, without a
// message of their own.
constexpr int64_t loss_element = 0;
constexpr int64_t first_vote = 1;
constexpr int64_t vote_kinds = 2;
static_assert(first_vote + vote_kinds <= BucketPlan::reserved);

std::string describe(const ParameterLayout& layout) {
  std::string lines;
  for (const Parameter& parameter : layout.parameters()) {
    lines += concat(parameter.name, " ", parameter.tensor.dtype(), parameter.tensor.shape());
    for (const std::string& other : parameter.other_names) lines += concat(" = ", other);
    lines += parameter.is_frozen ? " frozen\n" : "\n";
  }
  return lines;
}

/// Returns the options that decide which collectives a step calls, as text.
std::string describe(const DataParallelOptions& options) {
  return concat("replicas = ", options.replicas, "\naccumulate = ", options.accumulate,
                "\nreduction = ", options.reduction == Reduction::tree ? "tree" : "native",
                "\nshard = ", name(options.shard), "\ngroup = ", options.group,
                "\noffload = ", name(options.offload), "\nbucket_bytes = ", options.bucket_bytes,
                "\nshared_memory = ", options.shared_memory, "\ntransport = ", name(options.transport),
                "\nloss scale = ", options.scaler ? options.scaler->state().scale : 1.0f, "\n");
}

/// Prepares the space for offloading and returns the mode in effect, which decides the sharding.
Offload begin_offload(ParameterSpace& space, Offload offload) {
  expect(
      offload != Offload::none || !space.values.are_offloaded(),
      "another DataParallel left the values on the host, but offload is none: set the same Options::offload");
  if (device_of(space.layout.stream()) == Device::cpu) return Offload::none;
  if (offload == Offload::optimizer) space.copies.keep();
  return offload;
}

}  // namespace

DataParallel::DataParallel(ParameterSpace& space, const World& world, Options options)
    : space_(space),
      communicator_(world.shared_communicator()),
      options_(options),
      offload_(begin_offload(space, options.offload)),
      sharding_(space, options.shard, world.size(), options.group, offload_),
      precision_(space.precision()) {
  if (options_.replicas == 0) options_.replicas = world.size();
  expect(options_.accumulate >= 1, "accumulate is ", options_.accumulate);
  expect(space.layout.dtype() == DType::f32, "parameters are ", space.layout.dtype(), ", not f32");
  expect(!options_.scaler || &options_.scaler->space() == &space_, "the GradScaler belongs to another space");
  require(sharding_.stage == Shard::none || options_.reduction == Reduction::tree,
          "dist.shard = ", name(sharding_.stage),
          " with dist.reduction = native: owners add sharded or offloaded gradients as a tree; set "
          "dist.reduction = tree");
  require_equal_on_all_ranks(*communicator_, "the model's parameters", describe(space.layout));
  require_equal_on_all_ranks(*communicator_, "the options of data parallelism", describe(options_));

  reducer_ = std::make_unique<GradientReducer>(communicator_, space.layout, sharding_, options_);
  micro_batches_ = reducer_->plan().micro_batches();
  values_ = std::make_unique<DistributedValues>(space, sharding_, offload_, *communicator_, *reducer_);
  make_step_summary();
  votes_ = full({vote_kinds}, 0.0, DType::f32, space.layout.stream());
  const int64_t elements = reducer_->buckets().elements;
  for (int slot = 0; slot < reducer_->plan().slots && !reducer_->cuts_gradients(); ++slot) {
    const Tensor all(reducer_->storage(), slot * elements * 4, {elements}, DType::f32);
    reserved_.push_back(all.slice(0, BucketPlan::reserved));
    gradients_.push_back(all.slice(BucketPlan::reserved, elements));
  }
  told_ = reducer_->cuts_gradients() ? step_summary_.slice(0, BucketPlan::reserved) : reserved_.front();
  is_ready_.resize(space.layout.parameters().size());
  missing_in_bucket_.resize(reducer_->buckets().buckets.size());
  // Hooks come last: if the constructor throws, no destructor removes them.
  for (size_t p = 0; p < is_ready_.size(); ++p) hook(p);
}

void DataParallel::hook(size_t p) {
  const Parameter& parameter = space_.layout.parameters()[p];
  if (parameter.is_frozen) return;
  LeafGradient& leaf = leaf_gradient(parameter.tensor);
  leaf.ready = [this, p] { on_ready(p); };
  if (!reducer_->cuts_gradients()) return;
  leaf.buffer = {};
  leaf.accumulate = false;
  leaf.begin = [this, p] { bind_leaf(p); };
}

DataParallel::~DataParallel() {
  for (const Parameter& parameter : space_.layout.parameters()) {
    if (parameter.is_frozen) continue;
    LeafGradient& leaf = leaf_gradient(parameter.tensor);
    leaf.ready = leaf.begin = nullptr;
    if (reducer_->cuts_gradients()) leaf.buffer = {};
  }
}

void DataParallel::make_step_summary() {
  constexpr int64_t reserved = BucketPlan::reserved, floats_a_block = sizeof(double) / sizeof(float);
  Ownership owned = blocks_by_owner(sharding_.updates);
  const int64_t blocks = owned.back()[0].end, elements = reserved + floats_a_block * blocks;
  const auto memory = reducer_->movement().allocate(elements, false);
  step_summary_ = Tensor(memory, 0, {elements}, DType::f32);
  squares_by_owner_ = Tensor(memory, reserved * 4, {blocks}, DType::f64);
  own_squares_ = squares_by_owner_.slice(owned[rank()][0].begin, owned[rank()][0].end);
  for (std::vector<Range>& ranges : owned)
    ranges[0] = {reserved + floats_a_block * ranges[0].begin, reserved + floats_a_block * ranges[0].end};
  owned[0][0].begin = 0;
  summary_plan_ = TransferPlan::in_place(owned, elements, communicator_->rank());
  if (communicator_->size() == 1) return;
  const Stream& stream = space_.layout.stream();
  squares_ = empty({blocks}, DType::f64, stream);
  place_of_block_ = empty({blocks}, DType::i32, stream);
  if (mode_of(stream).is_dry) return;
  copy_bytes(place_of_block_.view().data, stream, places_of_blocks(sharding_.updates).data(), cpu_stream(),
             blocks * 4);
}

/// Returns the squares of all blocks in the order of the space, which is that of the norm's additions.
Tensor DataParallel::ordered_squares() const {
  if (!squares_) return squares_by_owner_;
  const auto as_rows = [](const Tensor& squares) {  // the bits of an f64 as two f32
    return View{squares.view().data, {squares.size(), 2}, DType::f32};
  };
  launch(space_.layout.stream(),
         EmbeddingForward{
             .ids = place_of_block_.view(), .table = as_rows(squares_by_owner_), .y = as_rows(squares_)});
  return squares_;
}

std::vector<int> DataParallel::replicas() const {
  std::vector<int> replicas;
  for (const MicroBatch& one : micro_batches_)
    if (!one.is_empty && (replicas.empty() || replicas.back() != one.replica))
      replicas.push_back(one.replica);
  return replicas;
}

void DataParallel::expect_same_precision() const {
  expect(sharding_.stage == Shard::none || space_.precision() == precision_, "the model's precision was ",
         precision_, " when it was sharded, and now is ", space_.precision(),
         ": call set_precision() before DataParallel is made");
}

void DataParallel::begin_step() {
  expect_same_precision();
  values_->open();
}

void DataParallel::together(const std::function<void()>& body) {
  begin_step();
  try {
    body();
  } catch (...) {
    try {
      values_->close();
    } catch (const std::exception&) {
      // The body's error came first. It is the one to report.
    }
    throw;
  }
  values_->close();
}

void DataParallel::count_down(int bucket) {
  if (micro_batches_done_ % micro_batches_per_leaf() != micro_batches_per_leaf() - 1) return;
  if (--missing_in_bucket_[static_cast<size_t>(bucket)] == 0)
    reducer_->complete(bucket, micro_batches_done_ / micro_batches_per_leaf());
}

/// Binds a parameter's gradient to the buffer of its unit, if gradients are sharded.
void DataParallel::bind_leaf(size_t p) {
  const Parameter& parameter = space_.layout.parameters()[p];
  LeafGradient& leaf = leaf_gradient(parameter.tensor);
  if (leaf.buffer) return;
  const int unit = 1 + space_.layout.unit_of(parameter.place);  // unit 0 is the reserved elements
  const int64_t begin = BucketPlan::reserved + parameter.place.begin -
                        reducer_->buckets().units[static_cast<size_t>(unit)].begin;
  leaf.buffer =
      reducer_->leaf(unit).slice(begin, begin + parameter.place.size()).reshape(parameter.tensor.shape());
}

void DataParallel::on_ready(size_t parameter) {
  const Parameter& ready = space_.layout.parameters()[parameter];
  expect(!is_ready_[parameter], ready.name, " became ready twice in one backward");
  is_ready_[parameter] = true;
  if (reducer_->cuts_gradients()) leaf_gradient(ready.tensor).buffer = {};  // it is released with its unit
  const auto [first, end] = reducer_->buckets().buckets_of(ready.place);
  for (int bucket = first; bucket < end; ++bucket) count_down(bucket);
}

/// Writes the votes and this micro-batch's share of the replica's mean loss. Shares are added from left to
/// right.
void DataParallel::write_loss(const Tensor& loss, const Tensor& reserved, bool adds) const {
  expect(loss && loss.size() == 1 && loss.dtype() == DType::f32, "the loss of a replica is one f32 number");
  const Stream& stream = space_.layout.stream();
  const Tensor sum = reserved.slice(loss_element, loss_element + 1);
  const Tensor share = adds ? empty({1}, DType::f32, stream) : sum;
  const View value{loss.view().data, {1}, DType::f32};
  launch(stream, Scale{.x = value, .y = share.view(), .factor = 1.0 / options_.accumulate});
  if (adds) launch(stream, Add{.a = sum.view(), .b = share.view(), .y = sum.view()});
  copy(votes_, reserved.slice(first_vote, first_vote + vote_kinds));
}

void DataParallel::backward(const Tensor& loss) {
  expect(micro_batches_done_ < owed(), "backward() was called more than ", owed(),
         " times in this step; call wait() after the last");
  expect_same_precision();
  const bool cuts = reducer_->cuts_gradients();
  const int index = micro_batches_done_ % micro_batches_per_leaf();
  const int slot = reducer_->begin(micro_batches_done_ / micro_batches_per_leaf());
  space_.gradients.set_whole(!cuts);
  if (!cuts) space_.gradients.bind(gradients_[static_cast<size_t>(slot)], index > 0);
  std::fill(missing_in_bucket_.begin(), missing_in_bucket_.end(), 0);
  ++missing_in_bucket_[0];  // the reserved elements
  for (size_t p = 0; p < is_ready_.size(); ++p) {
    is_ready_[p] = space_.layout.parameters()[p].is_frozen;
    if (is_ready_[p]) continue;
    const auto [first, end] = reducer_->buckets().buckets_of(space_.layout.parameters()[p].place);
    for (int bucket = first; bucket < end; ++bucket) ++missing_in_bucket_[static_cast<size_t>(bucket)];
  }

  write_loss(loss, cuts ? reducer_->leaf(0) : reserved_[static_cast<size_t>(slot)], index > 0);
  count_down(0);
  const double factor = 1.0 / options_.accumulate;
  options_.scaler ? options_.scaler->backward(loss, factor) : lockstep::backward(loss, factor);

  const auto unused = std::find(is_ready_.begin(), is_ready_.end(), false);
  expect(unused == is_ready_.end(), "the loss does not depend on the parameter ",
         unused == is_ready_.end()
             ? ""
             : space_.layout.parameters()[static_cast<size_t>(unused - is_ready_.begin())].name,
         ": every parameter needs a gradient in every backward");
  ++micro_batches_done_;
}

void DataParallel::end_step(bool everything) {
  expect(micro_batches_done_ == owed(), "wait() after ", micro_batches_done_, " of ", owed(),
         " backward() calls");
  reducer_->finish(everything);
  if (reducer_->cuts_gradients())
    space_.gradients.place({reducer_->shard(), Placement(sharding_.updates[rank()])});
  else
    space_.gradients.bind(gradients_[0]);
  micro_batches_done_ = 0;
  updates_by_owners_ = is_scattered_ = !everything;
}

void DataParallel::finish() { end_step(true); }

float DataParallel::wait() {
  finish();
  const auto loss = static_cast<float>(item(mean_loss()));
  check();
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
         "a GradScaler may skip steps: call the optimizer's count_on_device() before prepare()");
  end_step(false);
  values_->close();
  place_states(optimizer);
  const std::vector<Range>& mine = sharding_.updates[rank()];
  const Tensor on_the_way = step_summary_.slice(0, BucketPlan::reserved);
  // A single rank has the means where they are read.
  const bool is_alone = communicator_->size() == 1 && !reducer_->cuts_gradients();
  const bool has_means = !reducer_->cuts_gradients() || rank() == 0;
  if (has_means && !is_alone) copy(reducer_->reserved_mean(), on_the_way);
  square_blocks(space_, mine, own_squares_);
  reducer_->transfer({.plan = *summary_plan_, .from = step_summary_.view(), .to = step_summary_.view()});
  if (!reducer_->cuts_gradients() && !is_alone) copy(on_the_way, told_);
  // Every rank computes it from the same numbers. So all ranks skip a step, or none does.
  norm_ = norm_of_blocks(ordered_squares(), max_norm, options_.scaler ? options_.scaler->scale() : Tensor());
  optimizer.update(mine, norm_.factor);
  if (options_.scaler) options_.scaler->update(norm_.factor);
  values_->gather_updates();
  space_.gradients.set_whole(false);
}

void DataParallel::gather_gradients() {
  expect(!reducer_->cuts_gradients(),
         "no rank has all gradients, because dist.shard = ", lockstep::name(sharding_.stage),
         " gives each rank only those of its owned ranges");
  expect(!options_.scaler,
         "the scale of the gradients may have changed by now: call wait() and GradScaler::unscale() before "
         "the step");
  if (is_scattered_) reducer_->gather_slot();
  is_scattered_ = false;
  space_.gradients.set_whole(true);
}

void DataParallel::place_states(Optimizer& optimizer) {
  if (communicator_->size() == 1 && offload_ == Offload::none) return;
  optimizer.set_states_are_whole(false);
  if (sharding_.stage != Shard::none) return optimizer.place_states(Placement(sharding_.updates[rank()]));
  const auto& states = optimizer.states();
  const auto is_known = [](const Tensor& known, const auto& state) {
    return known.id() == state.flat.memory().id();
  };
  if (std::ranges::equal(known_states_, states, is_known)) return;
  const MemoryScope scope("optimizer");
  known_states_.clear();
  std::vector<Tensor> memory;
  const int64_t elements = space_.layout.trainable_elements();
  for (size_t i = 0; i < states.size(); ++i)
    if (const auto storage = reducer_->movement().allocate(elements, true))
      memory.emplace_back(storage, 0, Shape{elements}, DType::f32);
  if (memory.size() == states.size())
    optimizer.place_states(memory, Placement::whole(elements), sharding_.updates[rank()]);
  for (const auto& state : states) known_states_.push_back(state.flat.memory());
  release_cached_memory(space_.layout.stream());
  communicator_->barrier();
}

Tensor DataParallel::mean_loss() const {
  return told_.slice(loss_element, loss_element + 1).reshape(Shape{});
}

void DataParallel::vote(Vote what, bool wanted) {
  const auto element = static_cast<int64_t>(what);
  fill(votes_.slice(element, element + 1), wanted ? 1.0 : 0.0);
}

Tensor DataParallel::votes() const { return told_.slice(first_vote, first_vote + vote_kinds); }

Tensor DataParallel::loss_and_votes() const {
  static_assert(first_vote == loss_element + 1);
  return told_.slice(loss_element, first_vote + vote_kinds);
}

void DataParallel::replay(const Graph& step) {
  reducer_->movement().replay([&step] { step.launch(); });
  is_scattered_ = updates_by_owners_;
  space_.gradients.set_whole(!is_scattered_ && !reducer_->cuts_gradients());
}

}  // namespace lockstep
