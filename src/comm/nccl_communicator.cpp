// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <nccl.h>
#include <thread>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/core/cuda_check.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "NCCL 2.18 or newer is needed"
#endif

namespace lockstep {
namespace {

std::string words(const char* call, ncclResult_t result, ncclComm_t communicator) {
  const char* details = ncclGetLastError(communicator);
  const bool has_details = details != nullptr && *details != '\0';
  return concat(call, ": ", ncclGetErrorString(result), has_details ? concat(" (", details, ")") : "");
}

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) throw Error(words(call, result, nullptr));
}

cudaStream_t native(const Stream& stream) { return cuda::native(std::get<CudaStream>(stream)); }

/// Memory of a communicator. It outlives its registration.
struct Allocation {
  std::shared_ptr<std::byte> memory;
  int64_t bytes = 0;
  void* handle = nullptr;  ///< registration handle; null if ranks have none
};

/// The connection of a rank. A thread that aborts it may outlive its owner.
struct Connection {
  ncclComm_t communicator = nullptr;
  int device = 0;
  std::atomic<bool> is_broken = false;  ///< no call is allowed any more
  std::vector<Allocation> allocations = {};
  std::timed_mutex mutex = {};  ///< held during calls of this rank and of its watchdog thread
};

/// Aborts a connection on a thread of its own. ncclCommAbort waits for the GPU, and until all graphs with the
/// communicator's operations are destroyed. The caller may have to destroy them first.
void abort_in_background(const std::shared_ptr<Connection>& connection) {
  if (connection->communicator == nullptr || connection->is_broken.exchange(true)) return;
  std::thread([connection] {
    // A call in progress gets time to end. A rank that hangs inside a call still has to be ended.
    if (connection->mutex.try_lock_for(std::chrono::seconds(1))) connection->mutex.unlock();
    cudaSetDevice(connection->device);
    ncclCommAbort(connection->communicator);
  }).detach();
}

class NcclCommunicatorImplementation final : public NcclCommunicator {
 public:
  NcclCommunicatorImplementation(Communicator& host, const ncclUniqueId& id, int device) : host_(host) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    // No call blocks, so that every wait has a deadline and break_off() is always possible.
    config.blocking = 0;
    connection_->device = device;
    const ncclResult_t result =
        ncclCommInitRankConfig(&connection_->communicator, host.size(), id, host.rank(), &config);
    try {
      settle(result, "ncclCommInitRankConfig");
    } catch (...) {
      break_off();
      throw;
    }
  }

  ~NcclCommunicatorImplementation() override {
    if (connection_->is_broken.load()) return;
    // Ranks finalize together. A rank must not wait for the others if it, or one of them, is going down.
    const bool is_going_down = std::uncaught_exceptions() > 0 || host_.cancelled().load();
    if (is_going_down || !finalize()) {
      break_off();
      return;
    }
    ncclCommDestroy(connection_->communicator);
  }

  void exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                const Stream& stream) override {
    const auto check = [&](const auto& message) {
      expect(message.bytes == 0 || was_allocated(message.data, message.bytes), message.bytes,
             " bytes for or from rank ", message.peer,
             " are in memory that NCCL's communicator has not allocated");
    };
    std::ranges::for_each(sends, check);
    std::ranges::for_each(receives, check);
    in_group("ncclSend and ncclRecv", [&] {
      ncclResult_t result = ncclSuccess;
      const auto post = [&](const auto& messages, auto call) {
        for (const auto& message : messages)
          if (message.bytes > 0 && (result == ncclSuccess || result == ncclInProgress))
            result = call(message.data, static_cast<size_t>(message.bytes), ncclUint8, message.peer,
                          connection_->communicator, native(stream));
      };
      post(sends, ncclSend);
      post(receives, ncclRecv);
      return result;
    });
  }

  void all_reduce(float* values, int64_t count, const Stream& stream) override {
    in_group("ncclAllReduce", [&] {
      return ncclAllReduce(values, values, static_cast<size_t>(count), ncclFloat32, ncclSum,
                           connection_->communicator, native(stream));
    });
  }

  std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream) override {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    // Memory is registered on every rank or on none, because NCCL does not allow a mixture.
    void* memory = nullptr;
    const bool has_memory = bytes == 0 || ncclMemAlloc(&memory, static_cast<size_t>(bytes)) == ncclSuccess;
    if (host_.on_every_rank(has_memory)) {
      void* handle = nullptr;
      const bool is_registered =
          bytes == 0 || (ncclCommRegister(connection_->communicator, memory, static_cast<size_t>(bytes),
                                          &handle) == ncclSuccess &&
                         handle != nullptr);
      const bool all_registered = host_.on_every_rank(is_registered);
      if (handle != nullptr && !all_registered) {
        ncclCommDeregister(connection_->communicator, handle);
        handle = nullptr;
      }
      const auto freed = [](std::byte* gone) {
        if (gone != nullptr) ncclMemFree(gone);
      };
      return keep({{static_cast<std::byte*>(memory), freed}, bytes, handle});
    }
    if (memory != nullptr) ncclMemFree(memory);
#endif
    return keep({lockstep::allocate(bytes, stream), bytes, nullptr});
  }

  std::string background_error() override {
    cudaSetDevice(connection_->device);
    const std::unique_lock lock(connection_->mutex, std::try_to_lock);
    if (!lock.owns_lock() || connection_->is_broken.load()) return {};  // a call is in progress: ask later
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(connection_->communicator, &state);
    if (result == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) return {};
    return words("NCCL", result == ncclSuccess ? state : result, connection_->communicator);
  }

  void break_off() override { abort_in_background(connection_); }

 private:
  void expect_connected(const char* what) const {
    expect(!connection_->is_broken.load(), what, ": NCCL was aborted");
  }

  template <class Calls>
  void in_group(const char* what, Calls calls) {
    ncclResult_t result = ncclSuccess;
    {
      const std::lock_guard lock(connection_->mutex);
      expect_connected(what);
      check(ncclGroupStart(), "ncclGroupStart");
      const ncclResult_t inside = calls();
      result = ncclGroupEnd();
      if (inside != ncclSuccess && inside != ncclInProgress) result = inside;
    }
    settle(result, what);
  }

  /// Waits until the call has finished its part on the host.
  void settle(ncclResult_t result, const char* what) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(host_.timeout());
    while (result == ncclInProgress) {
      expect(!host_.cancelled().load(), "this rank is going down");
      expect(Clock::now() < deadline, what, ": waited ", host_.timeout(), " s for the other ranks (",
             option_name("timeout_s"), ")");
      std::this_thread::yield();
      const std::lock_guard lock(connection_->mutex);
      expect_connected(what);
      check(ncclCommGetAsyncError(connection_->communicator, &result), "ncclCommGetAsyncError");
    }
    if (result == ncclSuccess) return;
    expect_connected(what);
    throw Error(words(what, result, connection_->communicator));
  }

  std::shared_ptr<std::byte> keep(Allocation allocation) {
    return connection_->allocations.emplace_back(std::move(allocation)).memory;
  }

  bool was_allocated(const std::byte* data, int64_t bytes) const {
    return std::ranges::any_of(connection_->allocations, [&](const Allocation& allocation) {
      const std::byte* const begin = allocation.memory.get();
      return data >= begin && data + bytes <= begin + allocation.bytes;
    });
  }

  bool finalize() {
    constexpr auto limit = std::chrono::seconds(5);
    for (const Allocation& allocation : connection_->allocations)
      if (allocation.handle != nullptr) ncclCommDeregister(connection_->communicator, allocation.handle);
    const auto deadline = Clock::now() + limit;
    ncclResult_t state = ncclCommFinalize(connection_->communicator);
    while (state == ncclInProgress && Clock::now() < deadline) {
      std::this_thread::yield();
      if (ncclCommGetAsyncError(connection_->communicator, &state) != ncclSuccess) return false;
    }
    return state == ncclSuccess;
  }

  Communicator& host_;
  std::shared_ptr<Connection> connection_ = std::make_shared<Connection>();
};

/// Returns the id that rank 0 makes. Throws Error on all ranks if rank 0 cannot make one.
ncclUniqueId agree_on_id(Communicator& host) {
  ncclUniqueId id = {};
  std::string problem;
  if (host.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) problem = words("ncclGetUniqueId", result, nullptr);
  }
  problem = host.broadcast_text(problem, 0);
  expect(problem.empty(), problem);
  return host.broadcast_value(id, 0);
}

}  // namespace

int nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

std::unique_ptr<NcclCommunicator> connect_nccl(Communicator& host, int device) {
  const ncclUniqueId id = agree_on_id(host);
  cuda::check(cudaSetDevice(device), "selecting a GPU");
  std::unique_ptr<NcclCommunicator> communicator;
  std::string problem;
  try {
    host.recorded("nccl_init", 0,
                  [&] { communicator = std::make_unique<NcclCommunicatorImplementation>(host, id, device); });
  } catch (const Error& failure) {
    problem = concat("rank ", host.rank(), ": ", failure.what());
  }
  for (const std::string& text : host.all_gather_text(problem)) expect(text.empty(), text);
  return communicator;
}

}  // namespace lockstep
