// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/local_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/memory_pool.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// A meeting point, and a table in which each rank publishes data. The others may read it until they part.
struct LocalCommunicator::Group {
  struct Published {
    std::string operation;  ///< in words; a difference between ranks is an error
    const void* data = nullptr;
    std::span<const SentMessage> sends;

    const std::byte* bytes() const { return static_cast<const std::byte*>(data); }
  };

  explicit Group(int ranks)
      : size(ranks),
        published(static_cast<size_t>(ranks)),
        members_(static_cast<size_t>(ranks)),
        here_(static_cast<size_t>(ranks)),
        gone_(static_cast<size_t>(ranks)) {}

  void set_member(int rank, Communicator* member) {
    const std::lock_guard lock(mutex_);
    members_[static_cast<size_t>(rank)] = member;
    // Another rank may have failed before this one begins.
    if (first_failure && member) member->cancel();
  }

  /// Waits for all ranks.
  void arrive(int rank, double timeout_seconds, const std::atomic<bool>& cancelled) {
    std::unique_lock lock(mutex_);
    const uint64_t round = enter(rank);
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds);
    while (rounds_ == round) {
      const bool late = Clock::now() >= deadline;
      if (first_failure || cancelled.load() || late) {
        const std::string problem = first_failure ? "another rank failed"
                                    : cancelled.load()
                                        ? "this rank is going down"
                                        : concat("waited ", timeout_seconds, " s; ", missing());
        // A rank that arrives later must neither meet this rank nor report it as missing.
        here_[static_cast<size_t>(rank)] = false;
        gone_[static_cast<size_t>(rank)] = true;
        throw Error(problem);
      }
      all_here_.wait_for(lock, std::chrono::milliseconds(50));
    }
  }

  /// Waits until all ranks have copied. Until it ends, no rank may free its memory. So a rank whose copy
  /// fails comes, too, with its failure. All ranks then throw the first.
  void part(int rank, std::exception_ptr failure) {
    std::unique_lock lock(mutex_);
    if (!copy_failure_) copy_failure_ = failure;
    const uint64_t round = enter(rank);
    all_here_.wait(lock, [&] { return rounds_ != round; });
    if (copy_failure_) std::rethrow_exception(copy_failure_);
  }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!first_failure) first_failure = failure;
    for (Communicator* member : members_)
      if (member) member->cancel();
    all_here_.notify_all();
  }

  const Published& of(int rank) const { return published[static_cast<size_t>(rank)]; }

  int size;
  std::vector<Published> published;
  std::shared_ptr<SharedMemory> shared;
  std::exception_ptr first_failure;

 private:
  uint64_t enter(int rank) {
    here_[static_cast<size_t>(rank)] = true;
    gone_[static_cast<size_t>(rank)] = false;
    const uint64_t round = rounds_;
    if (std::find(here_.begin(), here_.end(), false) == here_.end()) {
      std::fill(here_.begin(), here_.end(), false);
      ++rounds_;
      all_here_.notify_all();
    }
    return round;
  }

  std::string missing() const {
    std::string ranks;
    for (size_t rank = 0; rank < here_.size(); ++rank)
      if (!here_[rank] && !gone_[rank]) ranks += concat(ranks.empty() ? "" : ", ", rank);
    return concat("rank ", ranks, " did not arrive");
  }

  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<Communicator*> members_;
  std::vector<bool> here_;
  std::vector<bool> gone_;  ///< gave up waiting
  uint64_t rounds_ = 0;
  std::exception_ptr copy_failure_;
};

std::shared_ptr<LocalCommunicator::Group> LocalCommunicator::make_group(int size) {
  return std::make_shared<Group>(size);
}

LocalCommunicator::LocalCommunicator(std::shared_ptr<Group> group, int rank)
    : Communicator(rank, group->size), group_(std::move(group)) {
  group_->set_member(rank, this);
}

LocalCommunicator::~LocalCommunicator() { group_->set_member(rank(), nullptr); }

std::unique_ptr<LocalCommunicator> LocalCommunicator::alone() {
  return std::make_unique<LocalCommunicator>(make_group(1), 0);
}

std::shared_ptr<SharedMemory> LocalCommunicator::share(int64_t bytes, bool is_common) {
  if (rank() == 0) {
    group_->shared = std::make_shared<SharedMemory>();
    group_->shared->bytes = bytes;
    for (int peer = 0; peer < size(); ++peer) {
      auto& owners = group_->shared->owners;
      const bool is_new = peer == 0 || !is_common;
      owners.push_back(is_new ? allocate(bytes, cpu_stream()) : owners[0]);
      if (is_new) std::memset(owners.back().get(), 0, static_cast<size_t>(bytes));
      group_->shared->of_rank.push_back(owners.back().get());
    }
  }
  std::shared_ptr<SharedMemory> memory;
  together(concat(is_common ? "common " : "", "share of ", bytes, " bytes"), nullptr, {},
           [&] { memory = group_->shared; });
  return memory;
}

void LocalCommunicator::together(const std::string& operation, const void* data,
                                 std::span<const SentMessage> sends, const std::function<void()>& copy) {
  group_->published[static_cast<size_t>(rank())] = {operation, data, sends};
  group_->arrive(rank(), timeout(), cancelled());
  std::string difference;
  std::exception_ptr failure;
  try {
    for (int peer = 0; peer < size() && difference.empty(); ++peer) {
      const std::string& theirs = group_->of(peer).operation;
      if (theirs != operation)
        difference = concat("rank ", peer, " called ", theirs, ", rank ", rank(), " called ", operation);
    }
    // Every rank detects a difference, so no rank copies data of another operation.
    if (difference.empty()) copy();
  } catch (...) {
    failure = std::current_exception();
  }
  group_->part(rank(), failure);
  expect(difference.empty(), difference);
}

void LocalCommunicator::do_barrier() {
  together("barrier", nullptr, {}, [] {});
}

void LocalCommunicator::do_broadcast(std::byte* data, int64_t bytes, int root) {
  together(concat("broadcast of ", bytes, " bytes from rank ", root), data, {}, [&] {
    if (rank() != root) std::copy_n(group_->of(root).bytes(), bytes, data);
  });
}

void LocalCommunicator::do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) {
  together(concat("all_gather of ", bytes, " bytes"), mine, {}, [&] {
    for (int peer = 0; peer < size(); ++peer)
      std::copy_n(group_->of(peer).bytes(), bytes, all + peer * bytes);
  });
}

void LocalCommunicator::do_exchange(std::span<const SentMessage> sends,
                                    std::span<const ReceivedMessage> receives) {
  std::string problem;
  together("exchange", nullptr, sends, [&] {
    std::vector<size_t> next(static_cast<size_t>(size()), 0);
    for (const ReceivedMessage& receive : receives) {
      const std::span<const SentMessage> theirs = group_->of(receive.peer).sends;
      size_t& position = next[static_cast<size_t>(receive.peer)];
      while (position < theirs.size() && theirs[position].peer != rank()) ++position;
      if (position == theirs.size() || theirs[position].bytes != receive.bytes) {
        problem =
            concat("rank ", receive.peer, " sent no message of ", receive.bytes, " bytes to rank ", rank());
        return;
      }
      std::copy_n(theirs[position++].data, receive.bytes, receive.data);
    }
  });
  expect(problem.empty(), problem);
}

void LocalCommunicator::do_native_all_reduce(float* values, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count), 0.0f);
  together(concat("native_all_reduce of ", count, " values"), values, {}, [&] {
    for (int peer = 0; peer < size(); ++peer)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<const float*>(group_->of(peer).data)[i];
  });
  std::copy(sum.begin(), sum.end(), values);
}

void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  const auto group = LocalCommunicator::make_group(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*std::make_shared<LocalCommunicator>(group, rank));
      } catch (...) {
        group->fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (group->first_failure) std::rethrow_exception(group->first_failure);
}

namespace {

void check_memory(const void* data, int64_t bytes) {
  expect(bytes >= 0, bytes, " bytes");
  expect(data || bytes == 0, bytes, " bytes at no address");
}

}  // namespace

DryCommunicator::DryCommunicator(int rank, int size, int ranks_of_host)
    : Communicator(rank, size), ranks_of_host_(ranks_of_host) {
  expect(0 <= rank && rank < size, "rank ", rank, " of ", size);
  expect(1 <= ranks_of_host && ranks_of_host <= size, ranks_of_host, " of ", size, " ranks on a host");
}

std::shared_ptr<SharedMemory> DryCommunicator::share(int64_t bytes, bool /*is_common*/) {
  expect(bytes > 0, "share of ", bytes, " bytes");
  expect(mode_of(cpu_stream()).is_dry, "a dry communicator shares memory only in a dry run");
  if (ranks_of_host_ < size()) return nullptr;
  auto memory = std::make_shared<SharedMemory>();
  memory->bytes = bytes;
  shared_bytes_ += bytes;
  // Shared memory is mapped separately, so the block must not be one that something else has freed.
  const ReuseScope apart{.queue = this};
  memory->owners.assign(static_cast<size_t>(size()), mode_of(cpu_stream()).memory->take(bytes, apart));
  memory->of_rank.assign(static_cast<size_t>(size()), memory->owners.front().get());
  return memory;
}

void DryCommunicator::do_broadcast(std::byte* data, int64_t bytes, int root) {
  check_memory(data, bytes);
  expect(0 <= root && root < size(), "broadcast from rank ", root, " of ", size());
}

void DryCommunicator::do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) {
  check_memory(mine, bytes);
  check_memory(all, bytes);
  for (int peer = 0; peer < size(); ++peer) std::copy_n(mine, bytes, all + peer * bytes);
}

void DryCommunicator::do_exchange(std::span<const SentMessage> sends,
                                  std::span<const ReceivedMessage> receives) {
  const auto check = [&](const auto& message) {
    check_memory(message.data, message.bytes);
    expect(0 <= message.peer && message.peer < size(), "a message for or from rank ", message.peer, " of ",
           size());
  };
  std::ranges::for_each(sends, check);
  std::ranges::for_each(receives, check);
}

void DryCommunicator::do_native_all_reduce(float* values, int64_t count) { check_memory(values, count * 4); }

}  // namespace lockstep
