// SPDX-License-Identifier: Apache-2.0

// NCCL for emulated GPUs. Ranks are processes of one host or threads of one process. They communicate through
// shared memory that the unique id names. Work runs on the thread that enqueues it and waits there for the
// other ranks. An abort ends the wait.

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <nccl.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "emulator/cudart.h"
#include "emulator/emulator.h"
#include "emulator/nccl_ranks.h"

namespace emulator {
namespace {

/// An operation that a graph holds, for as long as the graph lives.
class HeldByGraph {
 public:
  explicit HeldByGraph(std::shared_ptr<Membership> member) : member_(std::move(member)) {
    member_->recorded.fetch_add(1);
  }
  ~HeldByGraph() { member_->recorded.fetch_sub(1); }
  HeldByGraph(const HeldByGraph&) = delete;
  HeldByGraph& operator=(const HeldByGraph&) = delete;

 private:
  std::shared_ptr<Membership> member_;
};

/// Waits as NCCL does before it frees a communicator, without a limit: graphs that hold its operations have
/// to be destroyed first, and the GPU has to answer, which it never does once it is lost.
void wait_for_graphs(const Membership& member) {
  while (member.recorded.load() > 0 || lost_device() != cudaSuccess)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
using emulator::Membership;
using emulator::own_group;
using emulator::Transfer;

namespace {

ncclResult_t submit(const Group::Entry& entry) {
  cudaError_t found = cudaSuccess;
  const CUstream_st* const stream = emulator::find_stream(entry.stream, found);
  std::shared_ptr<emulator::HeldByGraph> held;
  if (stream != nullptr && stream->capture)
    held = std::make_shared<emulator::HeldByGraph>(entry.communicator->member);
  const cudaError_t result = emulator::enqueue(
      entry.stream,
      [member = entry.communicator->member, transfers = entry.transfers, work = entry.work, held] {
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
  emulator::wait_for_graphs(*communicator->member);
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->member->is_aborted.store(true);
  emulator::wait_for_graphs(*communicator->member);
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
