// SPDX-License-Identifier: Apache-2.0
#include "comm/dry_communicator.h"

#include <algorithm>

#include "core/error.h"
#include "core/memory_pool.h"
#include "core/stream.h"

namespace lockstep {
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
