// SPDX-License-Identifier: Apache-2.0
#include "dist/gradient_reducer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

/// Elements [first, second) of `count` that rank `rank` finishes: equal parts on cache lines.
std::pair<int64_t, int64_t> segment(int64_t count, int ranks, int rank) {
  const int64_t lines = count / BucketPlan::alignment;
  return {lines * rank / ranks * BucketPlan::alignment, lines * (rank + 1) / ranks * BucketPlan::alignment};
}

std::byte* bytes_of(float* values) { return reinterpret_cast<std::byte*>(values); }

}  // namespace

GradientReducer::GradientReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan,
                                 Options options)
    : communicator_(std::move(communicator)),
      plan_(plan),
      options_(options),
      mine_(replicas_of(options.replicas, communicator_->size(), communicator_->rank())),
      ready_(plan.buckets.size(), false) {
  TreeFold fold(options_.replicas);
  for (int v = mine_.begin; v < mine_.end; ++v) {
    slot_of_.push_back(static_cast<int>(fold.pending().size()));
    slots_ = std::max(slots_, slot_of_.back() + 1);
    additions_.push_back(fold.push({0, v}));
  }
  const int64_t slots_bytes = slots_ * plan_.elements * 4;
  const bool alone = communicator_->size() == 1;
  if (options_.shared_memory && !alone && options_.reduction == Reduction::tree) {
    // Ranks may hold different numbers of slots; a block has room for the most.
    int most = 0;
    std::vector<int> of_all(static_cast<size_t>(communicator_->size()));
    communicator_->all_gather(&slots_, sizeof(slots_), of_all.data());
    for (int slots : of_all) most = std::max(most, slots);
    shared_ = communicator_->share(std::max<int64_t>(64, most * plan_.elements * 4));
    auto meeting = shared_ ? communicator_->share(64) : nullptr;
    if (meeting)
      // Shared memory means one host.
      meeting_ = std::make_unique<SharedBarrier>(std::move(meeting), communicator_->rank(),
                                                 communicator_->size() > available_cores());
    else
      shared_ = nullptr;
  }
  const MemoryScope scope("gradients");
  storage_ = shared_ ? Storage::adopt(shared_->of_rank[static_cast<size_t>(communicator_->rank())],
                                      slots_bytes, current_stream(), shared_)
                     : Storage::make(slots_bytes, current_stream());
  if (!shared_ && slots_bytes > 0) std::memset(storage_->data.get(), 0, static_cast<size_t>(slots_bytes));
  plan_fold();
  if (options_.overlap && !alone) server_ = std::thread([this] { serve(); });
}

GradientReducer::~GradientReducer() {
  if (!server_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // A step that nobody finishes ends this rank: its thread must not wait for peers that may never come.
    if (std::find(ready_.begin(), ready_.end(), true) != ready_.end()) communicator_->cancel();
  }
  changed_.notify_all();
  server_.join();
}

/// Which slots of which ranks enter the last fold of a step, and its program. Where slots are read in place
/// the last replica's own additions are part of it; messages carry what is left after them.
void GradientReducer::plan_fold() {
  std::vector<TreeNode> nodes;
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const ReplicaRange theirs = replicas_of(options_.replicas, communicator_->size(), rank);
    TreeFold fold(options_.replicas);
    for (int v = theirs.begin; v + 1 < theirs.end; ++v) fold.push({0, v});
    std::vector<TreeNode> left = fold.pending();
    left.push_back({0, theirs.end - 1});
    if (!shared_ && communicator_->size() > 1) {
      fold.push(left.back());
      left = fold.pending();
    }
    inputs_of_rank_.push_back(static_cast<int>(left.size()));
    nodes.insert(nodes.end(), left.begin(), left.end());
  }
  program_ = fold_program(options_.replicas, nodes);
}

float* GradientReducer::slot(int rank, int index, const Bucket& bucket) const {
  std::byte* base =
      rank == communicator_->rank() ? storage_->data.get() : shared_->of_rank[static_cast<size_t>(rank)];
  return reinterpret_cast<float*>(base) + index * plan_.elements + bucket.begin;
}

void GradientReducer::merge(const Bucket& bucket, int k) {
  const int rank = communicator_->rank();
  const int64_t count = bucket.end - bucket.begin;
  for (int i = 0; i < additions_[static_cast<size_t>(k)]; ++i) {
    const int right = slot_of(k) - i;
    const float* inputs[] = {slot(rank, right - 1, bucket), slot(rank, right, bucket)};
    const FoldStep pair[] = {{0}, {1}, {FoldStep::add}};
    run_fold(pair, inputs, slot(rank, right - 1, bucket), count, 1.0f);
  }
}

void GradientReducer::complete(int bucket, int k) {
  if (k + 1 < mine_.size()) return merge(plan_.buckets[static_cast<size_t>(bucket)], k);
  {
    const std::lock_guard lock(mutex_);
    ready_[static_cast<size_t>(bucket)] = true;
  }
  if (server_.joinable()) changed_.notify_all();
}

void GradientReducer::finish() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const auto missing = std::find(ready_.begin(), ready_.end(), false);
  expect(missing == ready_.end(), "bucket ", missing - ready_.begin(), " was never completed");
  if (server_.joinable()) {
    changed_.wait(lock, [this] { return next_ == plan_.buckets.size() || failure_; });
  } else {
    reduce_ready_buckets(lock);
  }
  if (failure_) std::rethrow_exception(failure_);
  std::fill(ready_.begin(), ready_.end(), false);
  next_ = 0;
  // Nobody may overwrite slots that a slower rank still reads.
  if (shared_) communicator_->recorded("tree_release", 0, [this] { meet(); });
  exposed_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void GradientReducer::reduce_ready_buckets(std::unique_lock<std::mutex>& lock) {
  while (next_ < ready_.size() && ready_[next_]) {
    const Bucket& bucket = plan_.buckets[next_];
    lock.unlock();
    try {
      reduce(bucket);
      lock.lock();
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
    changed_.wait(lock, [this] { return stopping_ || (next_ < ready_.size() && ready_[next_]); });
    if (stopping_) return;
    reduce_ready_buckets(lock);
    changed_.notify_all();
  }
}

void GradientReducer::reduce(const Bucket& bucket) {
  const int64_t bytes = (bucket.end - bucket.begin) * 4;
  if (options_.reduction == Reduction::native) return reduce_natively(bucket);
  if (!shared_ && communicator_->size() > 1) return reduce_by_messages(bucket);
  communicator_->recorded("tree_reduce", bytes, [&] { reduce_in_place(bucket); });
}

void GradientReducer::meet() { meeting_->wait(communicator_->timeout(), communicator_->cancelled()); }

void GradientReducer::reduce_in_place(const Bucket& bucket) {
  const int ranks = communicator_->size();
  const int rank = communicator_->rank();
  const int64_t count = bucket.end - bucket.begin;
  const auto [begin, end] = segment(count, ranks, rank);
  std::vector<const float*> inputs;
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < inputs_of_rank_[static_cast<size_t>(peer)]; ++i)
      inputs.push_back(slot(peer, i, bucket) + begin);
  if (ranks > 1) meet();
  run_fold(program_, inputs, slot(rank, 0, bucket) + begin, end - begin,
           1.0f / static_cast<float>(options_.replicas));
  if (ranks > 1) meet();
  for (int step = 1; step < ranks; ++step) {
    const int peer = (rank + step) % ranks;
    const auto [from, to] = segment(count, ranks, peer);
    std::copy(slot(peer, 0, bucket) + from, slot(peer, 0, bucket) + to, slot(rank, 0, bucket) + from);
  }
}

void GradientReducer::reduce_by_messages(const Bucket& bucket) {
  merge(bucket, mine_.size() - 1);
  const int ranks = communicator_->size();
  const int rank = communicator_->rank();
  const int64_t count = bucket.end - bucket.begin;
  const auto [begin, end] = segment(count, ranks, rank);
  int received = 0;
  for (int peer = 0; peer < ranks; ++peer)
    if (peer != rank) received += inputs_of_rank_[static_cast<size_t>(peer)];
  const auto arriving = static_cast<size_t>(received * (end - begin));
  if (arrived_.size() < arriving) arrived_.resize(arriving);
  std::vector<const float*> inputs;
  std::vector<Message> sends, receives, results, others;
  float* next = arrived_.data();
  for (int peer = 0; peer < ranks; ++peer) {
    const auto [from, to] = segment(count, ranks, peer);
    for (int i = 0; i < inputs_of_rank_[static_cast<size_t>(peer)]; ++i) {
      inputs.push_back(peer == rank ? slot(rank, i, bucket) + begin : next);
      if (peer == rank) continue;
      receives.push_back({peer, bytes_of(next), (end - begin) * 4});
      next += end - begin;
    }
    if (peer == rank) continue;
    for (int i = 0; i < inputs_of_rank_[static_cast<size_t>(rank)]; ++i)
      sends.push_back({peer, bytes_of(slot(rank, i, bucket) + from), (to - from) * 4});
    results.push_back({peer, bytes_of(slot(rank, 0, bucket) + begin), (end - begin) * 4});
    others.push_back({peer, bytes_of(slot(rank, 0, bucket) + from), (to - from) * 4});
  }
  communicator_->exchange(sends, receives);
  run_fold(program_, inputs, slot(rank, 0, bucket) + begin, end - begin,
           1.0f / static_cast<float>(options_.replicas));
  communicator_->exchange(results, others);
}

void GradientReducer::reduce_natively(const Bucket& bucket) {
  merge(bucket, mine_.size() - 1);
  TreeFold fold(options_.replicas);
  for (int v = mine_.begin; v < mine_.end; ++v) fold.push({0, v});
  const int rank = communicator_->rank();
  const int64_t count = bucket.end - bucket.begin;
  float* sum = slot(rank, 0, bucket);
  for (int i = 1; i < static_cast<int>(fold.pending().size()); ++i) {
    const float* next = slot(rank, i, bucket);
    for (int64_t e = 0; e < count; ++e) sum[e] += next[e];
  }
  communicator_->native_all_reduce(sum, count);
  const float scale = 1.0f / static_cast<float>(options_.replicas);
  for (int64_t e = 0; e < count; ++e) sum[e] *= scale;
}

}  // namespace lockstep
