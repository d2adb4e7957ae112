// SPDX-License-Identifier: Apache-2.0
#include "dist/host_reducer.h"

#include <algorithm>
#include <cstring>

#include "core/clock.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace lockstep {

HostReducer::HostReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options)
    : GradientReducer(std::move(communicator), plan, options), ready_(plan.buckets.size(), false) {
  const bool is_alone = communicator_->size() == 1;
  if (options_.shared_memory && !is_alone && options_.reduction == Reduction::tree) share_slots();
  // Where slots are read in place, the last replica's additions are part of the fold.
  if (shared_) last_fold_ = LastFold(options_.replicas, communicator_->size(), false);
  const MemoryScope scope("gradients");
  storage_ = shared_ ? Storage::adopt(shared_->of_rank[static_cast<size_t>(communicator_->rank())],
                                      slots_bytes(), cpu_stream(), shared_)
                     : Storage::make(slots_bytes(), cpu_stream());
  if (!shared_ && slots_bytes() > 0) std::memset(storage_->data.get(), 0, static_cast<size_t>(slots_bytes()));
  if (options_.overlap && !is_alone) server_ = std::thread([this] { serve(); });
}

HostReducer::~HostReducer() {
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

void HostReducer::share_slots() {
  // Ranks may hold different numbers of slots; a block has room for the most.
  const int mine = slots();
  std::vector<int> of_all(static_cast<size_t>(communicator_->size()));
  communicator_->all_gather(&mine, sizeof(mine), of_all.data());
  const int most = *std::max_element(of_all.begin(), of_all.end());
  shared_ = communicator_->share(std::max<int64_t>(64, most * plan_.elements * 4));
  auto meeting = shared_ ? communicator_->share(64) : nullptr;
  if (meeting)
    // Shared memory means one host.
    meeting_ = std::make_unique<SharedBarrier>(std::move(meeting), communicator_->rank(),
                                               communicator_->size() > available_cores());
  else
    shared_ = nullptr;
}

const float* HostReducer::slot_of_rank(int rank, int index, const Bucket& bucket) const {
  if (rank == communicator_->rank()) return slot(index, bucket);
  const std::byte* base = shared_->of_rank[static_cast<size_t>(rank)];
  return reinterpret_cast<const float*>(base) + index * plan_.elements + bucket.begin;
}

void HostReducer::complete(int bucket, int k) {
  if (k + 1 < replicas().size()) return merge(cpu_stream(), plan_.buckets[static_cast<size_t>(bucket)], k);
  {
    const std::lock_guard lock(mutex_);
    ready_[static_cast<size_t>(bucket)] = true;
  }
  if (server_.joinable()) changed_.notify_all();
}

void HostReducer::finish() {
  const auto begin = Clock::now();
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
  exposed_seconds_ = seconds_since(begin);
}

void HostReducer::reduce_ready_buckets(std::unique_lock<std::mutex>& lock) {
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

void HostReducer::serve() {
  std::unique_lock lock(mutex_);
  while (!failure_) {
    changed_.wait(lock, [this] { return stopping_ || (next_ < ready_.size() && ready_[next_]); });
    if (stopping_) return;
    reduce_ready_buckets(lock);
    changed_.notify_all();
  }
}

void HostReducer::reduce(const Bucket& bucket) {
  const int64_t bytes = (bucket.end - bucket.begin) * 4;
  if (options_.reduction == Reduction::native) return reduce_natively(bucket);
  if (!shared_ && communicator_->size() > 1) return reduce_by_messages(bucket);
  communicator_->recorded("tree_reduce", bytes, [&] { reduce_in_place(bucket); });
}

void HostReducer::meet() { meeting_->wait(communicator_->timeout(), communicator_->cancelled()); }

// The stream is always the calling thread's, because two threads must not share a pool.

void HostReducer::reduce_in_place(const Bucket& bucket) {
  const int ranks = communicator_->size();
  const int rank = communicator_->rank();
  const int64_t count = bucket.end - bucket.begin;
  const int64_t begin = segment(count, rank).first;
  std::vector<const float*> inputs;
  for (int peer = 0; peer < ranks; ++peer)
    for (int i = 0; i < last_fold_.inputs_of_rank[static_cast<size_t>(peer)]; ++i)
      inputs.push_back(slot_of_rank(peer, i, bucket) + begin);
  if (ranks > 1) meet();
  finish_segment(cpu_stream(), bucket, inputs);
  if (ranks > 1) meet();
  for (int step = 1; step < ranks; ++step) {
    const int peer = (rank + step) % ranks;
    const auto [from, to] = segment(count, peer);
    const float* theirs = slot_of_rank(peer, 0, bucket);
    std::copy(theirs + from, theirs + to, slot(0, bucket) + from);
  }
}

void HostReducer::reduce_by_messages(const Bucket& bucket) {
  merge(cpu_stream(), bucket, replicas().size() - 1);
  const auto arriving = static_cast<size_t>(arriving_elements(bucket));
  if (arrived_.size() < arriving) arrived_.resize(arriving);
  const SegmentExchange exchange = exchange_of(bucket, arrived_.data());
  communicator_->exchange(exchange.sends, exchange.receives);
  finish_segment(cpu_stream(), bucket, exchange.inputs);
  communicator_->exchange(exchange.results, exchange.others);
}

void HostReducer::reduce_natively(const Bucket& bucket) {
  merge(cpu_stream(), bucket, replicas().size() - 1);
  add_pending(cpu_stream(), bucket);
  const int64_t count = bucket.end - bucket.begin;
  communicator_->native_all_reduce(slot(0, bucket), count);
  fold(cpu_stream(), {0}, {slot(0, bucket)}, slot(0, bucket), count, mean_factor());
}

}  // namespace lockstep
