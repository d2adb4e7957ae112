// SPDX-License-Identifier: Apache-2.0

// NCCL for emulated GPUs. Ranks are processes of one host or threads of one process. They communicate through
// shared memory that the unique id names. Work runs on the thread that enqueues it and waits there for the
// other ranks. An abort ends the wait.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <nccl.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "emulator/emulator.h"

namespace emulator {
namespace {

/// A buffer for messages from one rank to another. It is full until the receiver has copied it. Longer
/// messages are sent in several parts.
struct Mailbox {
  static constexpr size_t capacity = 16 << 10;
  std::atomic<bool> is_full;
  bool is_registered;  ///< true if the sender's memory is registered
  size_t bytes;
  std::byte content[capacity];
};

/// The layout of the shared memory. New pages are zero, and zero is the initial state of all members.
struct Meeting {
  std::atomic<int> ranks_here;
  std::atomic<int> ranks_finalized;
  Mailbox boxes[1];  ///< one mailbox for each pair of ranks
};

size_t bytes_of_meeting(int ranks) {
  return sizeof(Meeting) + sizeof(Mailbox) * static_cast<size_t>(ranks * ranks);
}

Meeting* open_meeting(const char* name, int ranks) {
  const int file = ::shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0) return nullptr;
  const size_t bytes = bytes_of_meeting(ranks);
  const bool is_sized = ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
  void* memory = is_sized ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Meeting*>(memory);
}

/// The state that a rank shares with its enqueued work. The work may outlive the communicator.
struct Membership {
  std::string name;
  Meeting* meeting = nullptr;
  int rank = 0;
  int ranks = 1;
  std::atomic<bool> is_aborted{false};
  std::atomic<bool> has_mixture{false};  ///< true after a message with registered memory at only one end

  ~Membership() {
    ::munmap(meeting, bytes_of_meeting(ranks));
    ::shm_unlink(name.c_str());  // needed if a rank never arrived
  }
  Mailbox& box(int from, int to) const { return meeting->boxes[from * ranks + to]; }
};

struct Transfer {
  bool is_send = false;
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool is_registered = false;
  size_t done = 0;
};

/// Moves one part of a message if the mailbox allows it. A message with registered memory at only one end is
/// undefined in NCCL's guide, and an H200 waits forever. Here it is an error of the communicator, which then
/// moves no more data.
bool advance(Membership& member, Transfer& transfer) {
  const int from = transfer.is_send ? member.rank : transfer.peer;
  const int to = transfer.is_send ? transfer.peer : member.rank;
  Mailbox& box = member.box(from, to);
  if (box.is_full.load(std::memory_order_acquire) == transfer.is_send) return false;
  if (transfer.is_send) {
    box.bytes = std::min(Mailbox::capacity, transfer.bytes - transfer.done);
    box.is_registered = transfer.is_registered;
    std::memcpy(box.content, transfer.data + transfer.done, box.bytes);
  } else {
    if (box.is_registered != transfer.is_registered) {
      member.has_mixture.store(true);
      return false;
    }
    std::memcpy(transfer.data + transfer.done, box.content, box.bytes);
  }
  transfer.done += box.bytes;
  box.is_full.store(transfer.is_send, std::memory_order_release);
  return true;
}

/// Moves all transfers concurrently. Transfers between the same two ranks keep their order. Returns early
/// after an abort or an error of the communicator.
void move(Membership& member, std::vector<Transfer> transfers) {
  std::erase_if(transfers, [](const Transfer& transfer) { return transfer.bytes == 0; });
  while (!transfers.empty() && !member.is_aborted.load() && !member.has_mixture.load()) {
    bool any = false;
    std::vector<bool> sends(static_cast<size_t>(member.ranks)), receives(sends);
    for (Transfer& transfer : transfers) {
      auto& is_later = transfer.is_send ? sends : receives;
      const auto peer = static_cast<size_t>(transfer.peer);
      if (!is_later[peer]) any = advance(member, transfer) || any;
      is_later[peer] = true;
    }
    std::erase_if(transfers, [](const Transfer& transfer) { return transfer.done == transfer.bytes; });
    if (!any) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// Gathers every rank's data in rank order.
void gather(Membership& member, const std::byte* mine, size_t bytes, std::byte* all) {
  std::vector<Transfer> transfers;
  std::byte* const own = all + static_cast<size_t>(member.rank) * bytes;
  if (own != mine) std::memcpy(own, mine, bytes);
  for (int peer = 0; peer < member.ranks; ++peer) {
    if (peer == member.rank) continue;
    transfers.push_back({.is_send = true, .peer = peer, .data = own, .bytes = bytes});
    transfers.push_back({.peer = peer, .data = all + static_cast<size_t>(peer) * bytes, .bytes = bytes});
  }
  move(member, std::move(transfers));
}

/// Adds in the order of a ring. The sum of chunk c begins with rank c.
void all_reduce(Membership& member, const float* mine, float* sums, size_t count) {
  const auto ranks = static_cast<size_t>(member.ranks);
  std::vector<float> all(ranks * count);
  gather(member, reinterpret_cast<const std::byte*>(mine), count * sizeof(float),
         reinterpret_cast<std::byte*>(all.data()));
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i * ranks / count;
    float sum = all[first * count + i];
    for (size_t step = 1; step < ranks; ++step) sum += all[(first + step) % ranks * count + i];
    sums[i] = sum;
  }
}

using Work = std::function<void(Membership&)>;

/// The calls of a thread since its outermost ncclGroupStart.
struct Group {
  struct Entry {
    ncclComm_t communicator;
    cudaStream_t stream;
    std::vector<Transfer> transfers;
    Work work;  ///< a collective; empty for transfers
  };
  int depth = 0;
  std::vector<Entry> entries;
};
thread_local Group own_group;

size_t size_of(ncclDataType_t type) {
  constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

}  // namespace
}  // namespace emulator

struct ncclComm {
  std::shared_ptr<emulator::Membership> member;
  bool is_blocking = true;
  bool is_answer_owed = false;  ///< a non-blocking call first returns "in progress"
  bool is_finalizing = false;
  std::map<const std::byte*, size_t> registered = {};  ///< number of registered bytes by start address

  bool is_registered(const std::byte* data) const {
    const auto after = registered.upper_bound(data);
    return after != registered.begin() && data < std::prev(after)->first + std::prev(after)->second;
  }

  /// Returns the result of a queued call.
  ncclResult_t queued() {
    is_answer_owed = !is_blocking;
    return is_answer_owed ? ncclInProgress : ncclSuccess;
  }
};

using emulator::Group;
using emulator::own_group;
using emulator::Membership;
using emulator::Transfer;

namespace {

ncclResult_t submit(const Group::Entry& entry) {
  const cudaError_t result = emulator::enqueue(
      entry.stream, [member = entry.communicator->member, transfers = entry.transfers, work = entry.work] {
        if (member->is_aborted.load()) return;
        if (work) return work(*member);
        emulator::move(*member, transfers);
      });
  return result == cudaSuccess ? entry.communicator->queued() : ncclUnhandledCudaError;
}

ncclResult_t transfer(ncclComm_t communicator, cudaStream_t stream, Transfer wanted) {
  const bool is_peer = wanted.peer >= 0 && wanted.peer < communicator->member->ranks;
  if (!is_peer || !emulator::is_device_memory(wanted.data, wanted.bytes)) return ncclInvalidArgument;
  Group::Entry* entry = nullptr;
  if (!own_group.entries.empty()) entry = &own_group.entries.back();
  if (entry == nullptr || entry->communicator != communicator || entry->stream != stream || entry->work)
    entry = &own_group.entries.emplace_back(Group::Entry{communicator, stream, {}, {}});
  wanted.is_registered = communicator->is_registered(wanted.data);
  entry->transfers.push_back(wanted);
  return communicator->is_blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t collective(ncclComm_t communicator, cudaStream_t stream, emulator::Work work) {
  own_group.entries.push_back({communicator, stream, {}, std::move(work)});
  return communicator->is_blocking ? ncclSuccess : ncclInProgress;
}

/// Runs a call that is outside of a group as a group of its own.
template <class Call>
ncclResult_t grouped(Call call) {
  ncclGroupStart();
  const ncclResult_t inside = call();
  const ncclResult_t result = ncclGroupEnd();
  if (inside != ncclSuccess && inside != ncclInProgress) return inside;
  return result == ncclSuccess ? inside : result;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "in progress"};
  return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t communicator) {
  const bool is_mixed = communicator != nullptr && communicator->member->has_mixture.load();
  return is_mixed ? "one end of a message lies in registered memory, the other does not" : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::random_device random;
  const std::string name = "/lockstep-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(random()) +
                           std::to_string(random());
  std::memcpy(id->internal, name.c_str(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  auto member = std::make_shared<Membership>();
  member->name = id.internal;
  member->rank = rank;
  member->ranks = ranks;
  member->meeting = emulator::open_meeting(id.internal, ranks);
  if (member->meeting == nullptr) return ncclSystemError;
  const bool is_last = member->meeting->ranks_here.fetch_add(1) + 1 == ranks;
  if (is_last) ::shm_unlink(id.internal);
  *communicator = new ncclComm{.member = std::move(member), .is_blocking = config->blocking != 0};
  if (!(*communicator)->is_blocking) return ncclInProgress;
  while ((*communicator)->member->meeting->ranks_here.load() < ranks) std::this_thread::yield();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  const Membership& member = *communicator->member;
  const bool is_waiting =
      member.meeting->ranks_here.load() < member.ranks ||
      (communicator->is_finalizing && member.meeting->ranks_finalized.load() < member.ranks);
  *state = is_waiting || communicator->is_answer_owed ? ncclInProgress : ncclSuccess;
  if (member.has_mixture.load()) *state = ncclInternalError;
  communicator->is_answer_owed = false;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  communicator->is_finalizing = true;
  communicator->member->meeting->ranks_finalized.fetch_add(1);
  return communicator->queued();
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->member->is_aborted.store(true);
  // The communicator stays allocated, because a thread of this rank may still be inside a call.
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t communicator, void* memory, size_t bytes, void** handle) {
  if (!emulator::is_device_memory(memory, bytes)) return ncclInvalidArgument;
  communicator->registered[static_cast<const std::byte*>(memory)] = bytes;
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void* handle) {
  communicator->registered.erase(static_cast<const std::byte*>(handle));
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++own_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (own_group.depth == 0) return ncclInvalidUsage;
  if (--own_group.depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (const Group::Entry& entry : std::exchange(own_group.entries, {})) {
    const ncclResult_t submitted = submit(entry);
    if (result == ncclSuccess || result == ncclInProgress) result = submitted;
  }
  return result;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));
  return grouped([&] {
    return transfer(communicator, stream,
                    {.is_send = true, .peer = peer, .data = bytes, .bytes = count * emulator::size_of(type)});
  });
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  auto* bytes = static_cast<std::byte*>(data);
  return grouped([&] {
    return transfer(communicator, stream,
                    {.peer = peer, .data = bytes, .bytes = count * emulator::size_of(type)});
  });
}

ncclResult_t ncclAllGather(const void* mine, void* all, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  const size_t bytes = count * emulator::size_of(type);
  const auto ranks = static_cast<size_t>(communicator->member->ranks);
  if (!emulator::is_device_memory(mine, bytes) || !emulator::is_device_memory(all, ranks * bytes))
    return ncclInvalidArgument;
  return grouped([&] {
    return collective(communicator, stream, [=](Membership& member) {
      emulator::gather(member, static_cast<const std::byte*>(mine), bytes, static_cast<std::byte*>(all));
    });
  });
}

ncclResult_t ncclAllReduce(const void* mine, void* sums, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  if (type != ncclFloat32 || operation != ncclSum) return ncclInvalidArgument;
  if (!emulator::is_device_memory(mine, count * 4) || !emulator::is_device_memory(sums, count * 4))
    return ncclInvalidArgument;
  return grouped([&] {
    return collective(communicator, stream, [=](Membership& member) {
      emulator::all_reduce(member, static_cast<const float*>(mine), static_cast<float*>(sums), count);
    });
  });
}

}  // extern "C"
