// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// NCCL as a transport between GPUs. Operations are enqueued on a stream, on all ranks in the same order.
/// Calls throw Error with NCCL's message, or once the host's communicator is cancelled.
class NcclCommunicator {
 public:
  virtual ~NcclCommunicator() = default;

  /// Sends and receives all messages at once. Messages between two ranks keep their order. Their memory must
  /// come from allocate(): NCCL requires both ends of a message to be registered, or neither.
  virtual void exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives,
                        const Stream& stream) = 0;
  /// Adds the values of all ranks in an order that NCCL chooses.
  virtual void all_reduce(float* values, int64_t count, const Stream& stream) = 0;

  /// Allocates GPU memory that NCCL uses without copies if its version supports that. Otherwise it is plain
  /// GPU memory. All ranks call it in the same order. It lives as long as the communicator.
  virtual std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream) = 0;

  /// Returns the error that occurred in the background; empty without one. Any thread may call it; the call
  /// selects this rank's GPU for that thread.
  virtual std::string background_error() = 0;
  /// Begins to abort all operations, also those that run on the GPU, and returns at once. Any thread may call
  /// it. Later calls throw. The memory of allocate() stays valid until the abort is done.
  virtual void break_off() = 0;
};

/// Returns NCCL's version, such as 22809 for 2.28.9; 0 in a build without NCCL.
int nccl_version();

/// Connects the ranks of `host`; this rank uses GPU `device`. All ranks call it. It throws Error on all of
/// them if one fails, or at the deadline of `host`. Throws Error in a build without NCCL.
std::unique_ptr<NcclCommunicator> connect_nccl(Communicator& host, int device);

}  // namespace lockstep
