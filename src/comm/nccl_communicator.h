// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "core/stream.h"

namespace lockstep {

/// NCCL as a transport between GPUs: whatever it is asked for is put into the queue of a stream. All ranks
/// ask for the same in the same order. Calls throw Error in NCCL's words, and once the host's communicator is
/// cancelled.
class NcclCommunicator {
 public:
  virtual ~NcclCommunicator() = default;

  /// Sends and receives all at once; messages between two ranks keep their order. Their memory must
  /// come from allocate(): NCCL wants both ends of a message registered, or neither.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives,
                        const Stream& stream) = 0;
  /// Sum in an order that NCCL chooses.
  virtual void all_reduce(float* values, int64_t count, const Stream& stream) = 0;

  /// GPU memory that NCCL may send from and receive into without copies, where its version can; plain GPU
  /// memory elsewhere. All ranks call it in the same order. It lasts as long as the communicator.
  virtual std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream) = 0;

  /// What went wrong in the background; empty while all is well. Any thread may ask, and has
  /// chosen this rank's GPU afterwards.
  virtual std::string background_error() = 0;
  /// Ends all operations, also those that run on the GPU. Any thread may call it; later calls throw.
  virtual void break_off() = 0;
};

/// NCCL's version, as 22809 for 2.28.9; 0 in a build without NCCL.
int nccl_version();

/// Joins the ranks of `host`, of which this one uses GPU `device`. All ranks call it; Error on all of them if
/// one fails, and at the deadline of `host`. Throws Error in a build without NCCL.
std::unique_ptr<NcclCommunicator> connect_nccl(Communicator& host, int device);

}  // namespace lockstep
