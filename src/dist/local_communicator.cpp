// SPDX-License-Identifier: Apache-2.0
#include "dist/local_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace lockstep {

/// A meeting point, and a table in which each rank publishes what the others may read until they meet again.
struct LocalCommunicator::Group {
  struct Published {
    const void* data = nullptr;
    std::span<const Message> sends;
  };

  explicit Group(int ranks) : size(ranks), published(static_cast<size_t>(ranks)) {}

  void meet(double timeout_seconds, const std::atomic<bool>& cancelled) {
    std::unique_lock lock(mutex);
    const uint64_t round = rounds;
    if (++arrived == size) {
      arrived = 0;
      ++rounds;
      all_here.notify_all();
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
    while (rounds == round) {
      expect(!failed, "another rank failed");
      expect(!cancelled.load(), "this rank is going down");
      expect(std::chrono::steady_clock::now() < deadline, "waited ", timeout_seconds, " s; only ", arrived,
             " of ", size, " ranks came");
      all_here.wait_for(lock, std::chrono::milliseconds(50));
    }
  }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex);
    if (!failed) first_failure = failure;
    failed = true;
    all_here.notify_all();
  }

  int size;
  std::vector<Published> published;
  std::shared_ptr<SharedMemory> shared;
  std::exception_ptr first_failure;

 private:
  std::mutex mutex;
  std::condition_variable all_here;
  int arrived = 0;
  uint64_t rounds = 0;
  bool failed = false;
};

std::shared_ptr<LocalCommunicator::Group> LocalCommunicator::make_group(int size) {
  return std::make_shared<Group>(size);
}

LocalCommunicator::LocalCommunicator(std::shared_ptr<Group> group, int rank)
    : Communicator(rank, group->size), group_(std::move(group)) {}

std::unique_ptr<LocalCommunicator> LocalCommunicator::alone() {
  return std::make_unique<LocalCommunicator>(make_group(1), 0);
}

std::shared_ptr<SharedMemory> LocalCommunicator::share(int64_t bytes) {
  if (rank() == 0) {
    group_->shared = std::make_shared<SharedMemory>();
    group_->shared->bytes = bytes;
    for (int peer = 0; peer < size(); ++peer) {
      const auto block_bytes = static_cast<size_t>((bytes + 63) / 64 * 64);
      std::shared_ptr<std::byte> block(static_cast<std::byte*>(std::aligned_alloc(64, block_bytes)),
                                       std::free);
      expect(block != nullptr || block_bytes == 0, "out of memory: ", bytes, " bytes shared by the ranks");
      std::memset(block.get(), 0, block_bytes);
      group_->shared->of_rank.push_back(block.get());
      group_->shared->owners.push_back(std::move(block));
    }
  }
  do_barrier();
  const std::shared_ptr<SharedMemory> memory = group_->shared;
  do_barrier();
  return memory;
}

void LocalCommunicator::do_barrier() { group_->meet(timeout(), cancelled()); }

void LocalCommunicator::do_broadcast(std::byte* data, int64_t bytes, int root) {
  group_->published[static_cast<size_t>(rank())].data = data;
  do_barrier();
  if (rank() != root)
    std::memcpy(data, group_->published[static_cast<size_t>(root)].data, static_cast<size_t>(bytes));
  do_barrier();
}

void LocalCommunicator::do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) {
  group_->published[static_cast<size_t>(rank())].data = mine;
  do_barrier();
  for (int peer = 0; peer < size(); ++peer)
    std::memcpy(all + peer * bytes, group_->published[static_cast<size_t>(peer)].data,
                static_cast<size_t>(bytes));
  do_barrier();
}

void LocalCommunicator::do_exchange(std::span<const Message> sends, std::span<const Message> receives) {
  group_->published[static_cast<size_t>(rank())].sends = sends;
  do_barrier();
  std::vector<size_t> next(static_cast<size_t>(size()), 0);
  for (const Message& receive : receives) {
    const auto& theirs = group_->published[static_cast<size_t>(receive.peer)].sends;
    size_t& position = next[static_cast<size_t>(receive.peer)];
    while (position < theirs.size() && theirs[position].peer != rank()) ++position;
    expect(position < theirs.size() && theirs[position].bytes == receive.bytes, "rank ", receive.peer,
           " sent no message of ", receive.bytes, " bytes to rank ", rank());
    std::memcpy(receive.data, theirs[position++].data, static_cast<size_t>(receive.bytes));
  }
  do_barrier();
}

void LocalCommunicator::do_native_all_reduce(float* values, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count), 0.0f);
  group_->published[static_cast<size_t>(rank())].data = values;
  do_barrier();
  for (const Group::Published& theirs : group_->published)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<const float*>(theirs.data)[i];
  do_barrier();
  std::copy(sum.begin(), sum.end(), values);
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  const auto group = LocalCommunicator::make_group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        LocalCommunicator communicator(group, rank);
        body(communicator);
      } catch (...) {
        group->fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (group->first_failure) std::rethrow_exception(group->first_failure);
}

}  // namespace lockstep
