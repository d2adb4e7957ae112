// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/fold.h"
#include "lockstep/kernels/spans.h"

namespace lockstep {
namespace {

/// Computes y[0:count) = scale * the program over inputs[k][0:count).
void launch_fold(const Stream& stream, const std::vector<int>& program,
                 const std::vector<const float*>& inputs, float* y, int64_t count, float scale) {
  const bool is_there = program.size() == 1 && inputs[static_cast<size_t>(program[0])] == y && scale == 1.0f;
  if (count == 0 || is_there) return;
  Fold kernel{.inputs = {}, .program = program, .y = {y, {count}, DType::f32}, .scale = scale};
  kernel.inputs.reserve(inputs.size());
  // A View has no const form for memory that is only read.
  for (const float* input : inputs) kernel.inputs.push_back({const_cast<float*>(input), {count}, DType::f32});
  launch(stream, kernel);
}

Transport settle_transport(Communicator& communicator, Transport wanted, int device) {
  if (wanted != Transport::automatic) return wanted;
  const detail::TransportFacts facts = detail::gather_transport_facts(communicator, device);
  const Transport transport = detail::choose_transport(facts);
  if (transport == Transport::staged && communicator.rank() == 0)
    log_warning(concat("gradients travel through the memory of the host, because ",
                       facts.shares_gpu ? "ranks share a GPU" : "this build has no NCCL"));
  return transport;
}

}  // namespace

GradientReducer::GradientReducer(const std::shared_ptr<Communicator>& communicator,
                                 const ParameterLayout& layout, const Sharding& sharding,
                                 const DataParallelOptions& options)
    // With full sharding the backward's thread gathers values. Two threads must not run collectives at the
    // same time.
    : GradientReducer(communicator, BucketPlan(layout, sharding, options.bucket_bytes), options,
                      layout.stream(), sharding.cuts_gradients() ? &layout : nullptr,
                      !sharding.cuts_reads()) {
  releases_ = sharding.stage != Shard::none;
}

GradientReducer::GradientReducer(std::shared_ptr<Communicator> communicator, BucketPlan buckets,
                                 const DataParallelOptions& options, const Stream& stream,
                                 const ParameterLayout* cut, bool may_overlap)
    : communicator_(std::move(communicator)),
      stream_(stream),
      buckets_(std::move(buckets)),
      reduction_(options.reduction),
      plan_(options.replicas > 0 ? options.replicas : communicator_->size(), options.accumulate,
            communicator_->size(), communicator_->rank(),
            cut != nullptr ? Execution::interleaved : Execution::ranges, false),
      in_place_(TransferPlan::in_place(buckets_.owned, buckets_.elements, plan_.rank)),
      ready_(buckets_.buckets.size(), false) {
  make_movement(options);
  for (size_t r = 0; r < plan_.rounds.size(); ++r)
    for (const Replica& replica : plan_.rounds[r].replicas) replicas_.emplace_back(r, replica);
  if (cut != nullptr) make_partial_sums(*cut);
  const bool has_room = communicator_->size() > 1 && !on_gpu() && may_overlap;
  if (options.overlap && has_room) server_ = std::thread([this] { serve(); });
}

void GradientReducer::make_partial_sums(const ParameterLayout& layout) {
  const MemoryScope scope("gradients");
  leaves_ = std::make_unique<LeafPool>(layout, buckets_,
                                       [this](int64_t count) { return movement_->allocate(count, false); });
  owned_ = Placement(buckets_.owned[static_cast<size_t>(plan_.rank)]);
  const int64_t bytes = owned_.elements() * 4;
  partial_sums_ = Storage::make(std::max(plan_.partial_sums, 1) * bytes, movement_->stream());
  if (on_gpu() && !is_queued())
    mean_ = Storage::make(bytes, stream_);
  else  // on the stream of the update, which has waited for the folds by then
    mean_ = std::make_shared<Storage>(Storage{partial_sums_->data, bytes, stream_});
}

Tensor GradientReducer::shard() const {
  const int64_t reserved = plan_.rank == 0 ? BucketPlan::reserved : 0;
  return {mean_, reserved * 4, {owned_.elements() - reserved}, DType::f32};
}

GradientReducer::~GradientReducer() {
  if (!server_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // An unfinished step means that this rank ends. Its thread must not wait for peers that may never come.
    if (std::find(ready_.begin(), ready_.end(), true) != ready_.end()) communicator_->cancel();
  }
  changed_.notify_all();
  server_.join();
}

/// Makes the movement between host memories, and this rank's slots there. Returns whether ranks share the
/// slots.
bool GradientReducer::make_host_movement(bool may_share) {
  if (may_share && plan_.ranks > 1) {
    movement_ = move_in_shared_memory(communicator_);
    if ((storage_ = make_slots(on_gpu()))) return true;
  }
  movement_ = move_as_messages(communicator_, cpu_stream());
  storage_ = make_slots(on_gpu());
  return false;
}

/// Allocates this rank's slots. If gradients are sharded or stored elsewhere, allocates one float to find out
/// whether such memory exists.
std::shared_ptr<Storage> GradientReducer::make_slots(bool is_probe) {
  const bool is_one = is_probe || !buckets_.units.empty();
  return movement_->allocate(is_one ? 1 : plan_.slots * buckets_.elements, false);
}

void GradientReducer::make_movement(const DataParallelOptions& options) {
  const MemoryScope scope("gradients");
  const bool is_host = device_of(stream_) == Device::cpu;
  if (!is_host && mode_of(stream_).is_dry) {  // GPU memory does not depend on the movement
    movement_ = move_as_messages(communicator_, stream_);
    storage_ = make_slots(false);
    return;
  }
  const Transport transport =
      is_host ? Transport::staged : settle_transport(*communicator_, options.transport, gpu_of(stream_));
  const bool is_shared = transport == Transport::staged &&
                         make_host_movement(options.shared_memory && reduction_ == Reduction::tree);
  // If owners read slots in place, the folds include the last replica's additions.
  plan_ = ReductionPlan(plan_.total_replicas, plan_.accumulate, plan_.ranks, plan_.rank, plan_.execution,
                        plan_.ranks > 1 && !is_shared);
  if (is_host) return;
  if (transport == Transport::staged) {
    storage_ = nullptr;
    movement_ = move_through_host(std::move(movement_), plan_.rank, stream_);
  } else if (transport == Transport::nccl) {
    movement_ = move_by_nccl(communicator_, buckets_, plan_, stream_, options.shard == Shard::full);
  } else {
    expect(plan_.ranks == 1, plan_.ranks, " ranks cannot reduce alone");
    movement_ = move_as_messages(communicator_, stream_);
  }
  storage_ = make_slots(false);
}

/// Returns the address of an element that this rank owns, in a partial sum.
float* GradientReducer::partial_sum(int index, int64_t element) const {
  return reinterpret_cast<float*>(partial_sums_->data.get()) + index * owned_.elements() +
         owned_.offset_of({element, element + 1});
}

const Tensor& GradientReducer::leaf(int unit) {
  std::unique_lock lock(mutex_);
  if (const Tensor& there = leaves_->gradients(unit)) return there;
  // After the pool is settled, the other thread may still read the unit that used this buffer before.
  if (server_.joinable()) {
    const auto begin = Clock::now();
    const auto is_idle = [&] { return next_ == ready_.size() || !ready_[next_] || failure_; };
    changed_.wait(lock, [&] { return leaves_->is_free(unit) || is_idle(); });
    exposed_seconds_ += seconds_since(begin);
  }
  if (failure_) std::rethrow_exception(failure_);
  return leaves_->acquire(unit);
}

/// Releases the previous unit after the fold of a bucket. Ranks have met for this bucket, so all of them have
/// read that unit.
void GradientReducer::retire(int bucket) {
  if (!leaves_ || bucket == 0) return;
  const int unit = buckets_.buckets[static_cast<size_t>(bucket)].unit;
  const int before = buckets_.buckets[static_cast<size_t>(bucket) - 1].unit;
  if (before != unit) leaves_->release(before, movement_->stream());
}

Movement::Scatter GradientReducer::scatter_of(int bucket) const {
  const BucketPlan::Bucket& what = buckets_.buckets[static_cast<size_t>(bucket)];
  float* first = nullptr;
  if (leaves_)
    first = leaves_->gradients(what.unit).data<float>() + what.range.begin -
            buckets_.units[static_cast<size_t>(what.unit)].begin;
  else
    first = slot(0) + what.range.begin;
  return {.bucket = what,
          .slots_of_rank = round().slots_of_rank,
          .first = first,
          .written = round().replicas.empty() ? 0 : round().replicas.back().slot + 1,
          .stride = buckets_.elements,
          .begins_step = round_ == 0 && bucket == 0};
}

/// Adds slot `last` to slot `last - 1`, and so on downwards.
void GradientReducer::add_slots(const Stream& stream, const Movement::Scatter& what, int last, int times) {
  for (; times > 0; --times, --last) {
    float* const left = what.at(last - 1, what.bucket.range.begin);
    launch_fold(stream, {0, 1, Fold::add}, {left, what.at(last, what.bucket.range.begin)}, left,
                what.bucket.range.size(), 1.0f);
  }
}

int GradientReducer::begin(int k) {
  const auto& [round, replica] = replicas_[static_cast<size_t>(k)];
  if (k == 0) exposed_seconds_ = 0.0;
  if (round > round_) end_round();
  return replica.slot;
}

void GradientReducer::complete(int bucket, int k) {
  const auto b = static_cast<size_t>(bucket);
  const auto& [index, replica] = replicas_[static_cast<size_t>(k)];
  if (replica.index != round().replicas.back().index)
    return add_slots(stream_, scatter_of(bucket), replica.slot, replica.additions);
  std::unique_lock lock(mutex_);
  movement_->enqueue(scatter_of(bucket));
  if (!is_queued()) written_.record(stream_);
  ready_[b] = true;
  // Units get their buffers without a second thread, so that every rank chooses the same ones.
  const bool is_at_once = is_queued() || (leaves_ && (!server_.joinable() || leaves_->is_settling()));
  if (is_at_once) {
    if (!is_queued()) written_.synchronize();
    const auto begin = Clock::now();
    reduce_ready_buckets(lock);
    exposed_seconds_ += seconds_since(begin);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  } else if (server_.joinable()) {
    changed_.notify_all();
  }
}

void GradientReducer::end_round() {
  expect(is_queued() || !is_recording_graph(),
         "gradients that travel through the host cannot be recorded in a graph");
  if (!is_queued()) written_.synchronize();  // the time until here is computation
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (round().replicas.empty()) ready_.assign(ready_.size(), true);
  const auto missing = std::find(ready_.begin(), ready_.end(), false);
  expect(missing == ready_.end(), "bucket ", missing - ready_.begin(), " was never completed");
  if (server_.joinable()) {
    changed_.notify_all();
    changed_.wait(lock, [this] { return next_ == ready_.size() || failure_; });
  } else {
    reduce_ready_buckets(lock);
  }
  if (failure_) std::rethrow_exception(failure_);
  ready_.assign(ready_.size(), false);
  next_ = 0;
  ++round_;
  movement_->join();
  if (leaves_) leaves_->release_all();
  exposed_seconds_ += seconds_since(begin);
}

void GradientReducer::finish(bool everything) {
  expect(!everything || !leaves_, "each rank keeps only the gradients of its owned ranges (",
         option_name("shard"), " = gradients or full): end the step with DataParallel::step()");
  movement_->check();
  while (round_ < plan_.rounds.size()) end_round();
  round_ = 0;
  if (leaves_) {
    if (mean_->data != partial_sums_->data)
      copy_bytes(mean_->data.get(), stream_, partial_sums_->data.get(), cpu_stream(), mean_->bytes);
    return;
  }
  const bool has_everything = gathers_early_ || reduction_ == Reduction::native;
  gathers_early_ = everything;
  if (everything && !has_everything) gather_slot();
}

void GradientReducer::gather_slot() {
  const View slot0{slot(0), {buckets_.elements}, DType::f32};
  transfer({.plan = in_place_, .from = slot0, .to = slot0});
}

void GradientReducer::transfer(const Movement::Transfer& route) {
  const auto begin = Clock::now();
  movement_->transfer(route);
  movement_->join();
  exposed_seconds_ += seconds_since(begin);
}

void GradientReducer::reduce_ready_buckets(std::unique_lock<std::mutex>& lock) {
  while (next_ < ready_.size() && ready_[next_]) {
    const auto bucket = static_cast<int>(next_);
    lock.unlock();
    try {
      reduce(bucket);
      lock.lock();
      retire(bucket);
      ++next_;
    } catch (...) {
      lock.lock();
      failure_ = std::current_exception();
      return;
    }
  }
}

void GradientReducer::serve() {
  std::unique_lock lock(mutex_);
  while (!failure_) {
    changed_.wait(lock, [this] {
      const bool is_here = !leaves_ || !leaves_->is_settling();  // otherwise the backward's thread reduces
      return stopping_ || (is_here && next_ < ready_.size() && ready_[next_]);
    });
    if (stopping_) return;
    reduce_ready_buckets(lock);
    changed_.notify_all();
  }
}

void GradientReducer::reduce(int bucket) {
  const SpanRange span("bucket", SpanRow::buckets, bucket);
  Movement::Scatter what = scatter_of(bucket);
  what.first = movement_->stage(what);
  const bool has_last = plan_.merges_last && !round().replicas.empty();
  if (has_last)
    add_slots(movement_->stream(), what, round().replicas.back().slot, round().replicas.back().additions);
  if (reduction_ == Reduction::native) return reduce_natively(what);
  if (gathers_early_)
    if (const auto arrived = movement_->all_gather(what); !arrived.empty())
      return fold(what, what.bucket.range, arrived);
  fold(what);
  if (releases_) movement_->release(what);
  if (leaves_) return;
  if (round_ + 1 < plan_.rounds.size()) return;
  movement_->publish(scatter_of(bucket));
  if (!gathers_early_) return;
  const TransferPlan plan = TransferPlan::in_place(what.bucket.owned, buckets_.elements, plan_.rank);
  const View slot0{slot(0), {buckets_.elements}, DType::f32};
  movement_->transfer({.plan = plan, .from = slot0, .to = slot0});
}

/// Scatters a bucket and folds the ranges that this rank owns. `what.first` has been staged.
void GradientReducer::fold(const Movement::Scatter& what) {
  const auto arrived = movement_->scatter(what);
  for (size_t i = 0; i < arrived.size(); ++i)
    fold(what, what.bucket.owned[static_cast<size_t>(plan_.rank)][i], arrived[i]);
}

/// Folds a range of the bucket. `arrived` has the range's first element in each slot of each rank.
void GradientReducer::fold(const Movement::Scatter& what, Range range,
                           const std::vector<const float*>& arrived) {
  std::vector<const float*> inputs;
  inputs.reserve(static_cast<size_t>(round().partial_sums) + arrived.size());
  for (int index = 0; index < round().partial_sums; ++index)
    inputs.push_back(partial_sum(index, range.begin));
  inputs.insert(inputs.end(), arrived.begin(), arrived.end());
  for (const auto& [program, index] : round().folds) {
    const bool is_mean = index == ReductionPlan::Fold::mean;
    float* const y = leaves_ ? partial_sum(is_mean ? 0 : index, range.begin) : what.at(0, range.begin);
    launch_fold(movement_->stream(), program, inputs, y, range.size(),
                is_mean ? 1.0f / static_cast<float>(plan_.total_replicas) : 1.0f);
  }
}

void GradientReducer::reduce_natively(const Movement::Scatter& what) {
  const Stream& stream = movement_->stream();
  const int64_t begin = what.bucket.range.begin, count = what.bucket.range.size();
  float* const sum = what.at(0, begin);
  const int pending = what.slots_of_rank[static_cast<size_t>(plan_.rank)];
  for (int slot = 1; slot < pending; ++slot)
    launch_fold(stream, {0, 1, Fold::add}, {sum, what.at(slot, begin)}, sum, count, 1.0f);
  if (plan_.ranks > 1) movement_->sum(sum, count);
  launch_fold(stream, {0}, {sum}, sum, count, 1.0f / static_cast<float>(plan_.total_replicas));
  // Every rank has the whole bucket.
  const BucketPlan::Bucket everything{.range = what.bucket.range,
                                      .owned = Ownership(what.bucket.owned.size(), {what.bucket.range})};
  movement_->publish(
      {everything, what.slots_of_rank, slot(0) + begin, what.written, what.stride, what.begins_step});
}

}  // namespace lockstep
