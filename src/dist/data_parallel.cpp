// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/data_parallel.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/kernels/spans.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep {
namespace {

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

/// Returns the options without Shard::hybrid.
static DataParallelOptions resolved(DataParallelOptions options, const World& world) {
  detail::resolve_hybrid(options.shard, options.group, world.local_size());
  return options;
}

DataParallel::DataParallel(ParameterSpace& space, const World& world, Options options)
    : space_(space),
      communicator_(world.shared_communicator()),
      options_(resolved(options, world)),
      setup(set_up()),
      values(space, setup.sharding, setup.offload, *communicator_, *reducer_),
      summary(space, setup.sharding, *reducer_),
      precision_(space.precision()) {
  summary_memory_ = summary.all_;
  const int64_t elements = reducer_->buckets().elements;
  for (int slot = 0; slot < setup.gradient_sets && !reducer_->cuts_gradients(); ++slot)
    slots_.emplace_back(reducer_->storage(), slot * elements * 4, Shape{elements}, DType::f32);
  is_ready_.resize(space.layout.parameters().size());
  missing_in_bucket_.resize(reducer_->buckets().buckets.size());
  // Hooks come last: if the constructor throws, no destructor removes them.
  for (size_t p = 0; p < is_ready_.size(); ++p) hook(p);
}

/// Checks the options, makes the reducer and returns the facts.
DataParallelSetup DataParallel::set_up() {
  const Offload offload = begin_offload(space_, options_.offload);
  Sharding sharding(space_, options_.shard, communicator_->size(), options_.group, offload);
  if (options_.replicas == 0) options_.replicas = communicator_->size();
  expect(options_.accumulate >= 1, "accumulate is ", options_.accumulate);
  expect(space_.layout.dtype() == DType::f32, "parameters are ", space_.layout.dtype(), ", not f32");
  expect(!options_.scaler || &options_.scaler->space() == &space_, "the GradScaler belongs to another space");
  require(sharding.stage == Shard::none || options_.reduction == Reduction::tree, option_name("shard"), " = ",
          name(sharding.stage), " with ", option_name("reduction"),
          " = native: owners add sharded or offloaded gradients as a tree; set ", option_name("reduction"),
          " = tree");
  require_equal_on_all_ranks(*communicator_, "the model's parameters", describe(space_.layout));
  require_equal_on_all_ranks(*communicator_, "the options of data parallelism", describe(options_));
  reducer_ = std::make_unique<GradientReducer>(communicator_, space_.layout, sharding, options_);
  return {.micro_batches = reducer_->plan().micro_batches(),
          .sharding = std::move(sharding),
          .offload = offload,
          .transport = reducer_->movement().name(),
          .gradient_sets = reducer_->plan().slots,
          .is_capturable = offload == Offload::none && reducer_->is_queued(),
          .scaler = options_.scaler};
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

std::vector<int> DataParallel::replicas() const {
  std::vector<int> replicas;
  for (const MicroBatch& one : setup.micro_batches)
    if (!one.is_empty && (replicas.empty() || replicas.back() != one.replica))
      replicas.push_back(one.replica);
  return replicas;
}

Loader DataParallel::loader(std::shared_ptr<const Dataset> data, Loader::Options options) const {
  options.replicas = options_.replicas;
  options.parts = options_.accumulate;
  options.whole_batches |= options_.accumulate > 1;
  options.local_parts.clear();
  for (const MicroBatch& one : setup.micro_batches) options.local_parts.push_back({one.replica, one.index});
  return {std::move(data), options};
}

void DataParallel::expect_same_precision() const {
  expect(setup.sharding.stage == Shard::none || space_.precision() == precision_,
         "the model's precision was ", precision_, " when it was sharded, and now is ", space_.precision(),
         ": call set_precision() before DataParallel is made");
}

void DataParallel::begin_step() {
  expect_same_precision();
  values.open();
}

void DataParallel::together(const std::function<void()>& body) {
  begin_step();
  try {
    body();
  } catch (...) {
    try {
      values.close();
    } catch (const std::exception&) {
      // The body's error came first. It is the one to report.
    }
    throw;
  }
  values.close();
}

Tensor DataParallel::gradients_of(int slot) const {
  return slots_[static_cast<size_t>(slot)].slice(BucketPlan::reserved, reducer_->buckets().elements);
}

int DataParallel::micro_batches_per_leaf() const {
  return reducer_->cuts_gradients() ? 1 : options_.accumulate;
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

void DataParallel::backward(const Tensor& loss) {
  expect(micro_batches_done_ < owed(), "backward() was called more than ", owed(),
         " times in this step; call wait() after the last");
  expect_same_precision();
  const TrainedSpace trained(space_.memory());
  const bool cuts = reducer_->cuts_gradients();
  const int index = micro_batches_done_ % micro_batches_per_leaf();
  const int slot = reducer_->begin(micro_batches_done_ / micro_batches_per_leaf());
  space_.gradients.set_whole(!cuts);
  if (!cuts) space_.gradients.bind(gradients_of(slot), index > 0);
  std::fill(missing_in_bucket_.begin(), missing_in_bucket_.end(), 0);
  ++missing_in_bucket_[0];  // the reserved elements
  for (size_t p = 0; p < is_ready_.size(); ++p) {
    is_ready_[p] = space_.layout.parameters()[p].is_frozen;
    if (is_ready_[p]) continue;
    const auto [first, end] = reducer_->buckets().buckets_of(space_.layout.parameters()[p].place);
    for (int bucket = first; bucket < end; ++bucket) ++missing_in_bucket_[static_cast<size_t>(bucket)];
  }

  summary.write(loss, cuts ? reducer_->leaf(0) : slots_[static_cast<size_t>(slot)], index > 0);
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

/// Throws the same UserError on all ranks if a matrix is zero in the parts of all of them.
void DataParallel::check_start() {
  std::vector<uint8_t> found = space_.values.find_numbers();
  const size_t count = found.size();
  std::vector<uint8_t> all(count * static_cast<size_t>(communicator_->size()));
  communicator_->all_gather(found.data(), std::ssize(found), all.data());
  for (size_t i = 0; i < all.size(); ++i) found[i % count] |= all[i];
  space_.values.expect_no_zero_matrix(found);
}

void DataParallel::end_step(bool everything) {
  const SpanRange span("wait for buckets");
  expect(micro_batches_done_ == owed(), "wait() after ", micro_batches_done_, " of ", owed(),
         " backward() calls");
  reducer_->finish(everything);
  if (!space_.values.is_start_checked()) check_start();
  if (reducer_->cuts_gradients())
    space_.gradients.place({reducer_->shard(), Placement(mine())});
  else
    space_.gradients.bind(gradients_of(0));
  micro_batches_done_ = 0;
  updates_by_owners_ = is_scattered_ = !everything;
}

float DataParallel::wait() {
  finish();
  const auto loss = static_cast<float>(item(summary.mean_loss()));
  check();
  return loss;
}

void DataParallel::step(Optimizer& optimizer, double learning_rate, double max_norm) {
  if (options_.scaler) optimizer.count_on_device();
  optimizer.prepare(learning_rate);
  update(optimizer, max_norm);
}

void DataParallel::update(Optimizer& optimizer, double max_norm, const std::function<void()>& check) {
  expect(&optimizer.space() == &space_, "the optimizer updates another space");
  expect(!options_.scaler || optimizer.counts_on_device(),
         "a GradScaler may skip steps: call the optimizer's count_on_device() before prepare()");
  end_step(false);
  if (check) check();
  values.close();
  place_states(optimizer);
  const Tensor& factor = [&]() -> const Tensor& {
    const SpanRange span("exchange of the norm");
    return summary.exchange(max_norm, options_.scaler ? options_.scaler->scale() : Tensor());
  }();
  {
    const SpanRange span("update");
    optimizer.update(mine(), factor);
    if (options_.scaler) options_.scaler->update(factor);
  }
  const SpanRange span("gather");
  values.gather_updates();
  space_.gradients.set_whole(false);
}

void DataParallel::gather_gradients() {
  expect(!reducer_->cuts_gradients(), "no rank has all gradients, because ", option_name("shard"), " = ",
         lockstep::name(setup.sharding.stage), " gives each rank only those of its owned ranges");
  expect(!options_.scaler,
         "the scale of the gradients may have changed by now: call wait() and GradScaler::unscale() before "
         "the step");
  if (is_scattered_) reducer_->gather_slot();
  is_scattered_ = false;
  space_.gradients.set_whole(true);
}

void DataParallel::place_states(Optimizer& optimizer) {
  if (communicator_->size() == 1 && setup.offload == Offload::none) return;
  optimizer.set_states_are_whole(false);
  if (setup.sharding.stage != Shard::none) return optimizer.place_states(Placement(mine()));
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
  if (memory.size() == states.size()) optimizer.place_states(memory, Placement::whole(elements), mine());
  for (const auto& state : states) known_states_.push_back(state.flat.memory());
  release_cached_memory(space_.layout.stream());
  communicator_->barrier();
}

void DataParallel::check() { reducer_->movement().check(); }

void DataParallel::replay(const Graph& step) {
  reducer_->movement().replay([&step] { step.launch(); });
  is_scattered_ = updates_by_owners_;
  space_.gradients.set_whole(!is_scattered_ && !reducer_->cuts_gradients());
}

}  // namespace lockstep
