// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/reduction_plan.h"
#include "lockstep/movement/sharding.h"
#include "lockstep/movement/transfer_plan.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// A way to send gradients and values between ranks. ReductionPlan defines the additions. All ranks call the
/// same operations in the same order. If stream() is a GPU's, operations are queued.
class Movement {
 public:
  /// A bucket that is sent to the owners of its elements.
  struct Scatter {
    const BucketPlan::Bucket& bucket;
    const std::vector<int>& slots_of_rank;  ///< [rank], the number of slots that each rank contributes
    float* first;                           ///< the bucket's first element in this rank's first slot
    int written;                            ///< the number of slots that this rank's replicas have written
    int64_t stride;                         ///< elements from slot to slot
    bool begins_step;

    float* at(int slot, int64_t element) const {
      return first + slot * stride + (element - bucket.range.begin);
    }
  };

  virtual ~Movement() = default;
  /// Returns the movement's name in words: "by NCCL".
  virtual const char* name() const = 0;
  /// Returns the stream on which folds run.
  virtual const Stream& stream() const = 0;
  /// Returns the stream on which transfer() writes the elements that arrive.
  virtual const Stream& arrivals() const { return stream(); }

  /// Returns `count` zeroed floats in memory that other ranks reach most cheaply. Returns null on all ranks
  /// if not even the first such memory is available. `is_common`: one block for all ranks, or null. All ranks
  /// call it with the same count.
  virtual std::shared_ptr<Storage> allocate(int64_t count, bool is_common) = 0;
  /// Returns memory in the queue of `stream` for elements that transfer() receives. No other rank reads it.
  /// Its contents are undefined. All ranks call it with the same number of bytes.
  virtual std::shared_ptr<Storage> allocate_arrivals(int64_t bytes, const Stream& stream) {
    return Storage::make(bytes, stream);
  }

  /// Allows copies of a bucket to begin: the kernels that write its slots are queued.
  virtual void enqueue(const Scatter&) {}
  /// Returns the address of this rank's slots for folds: in place, or in a copy that is complete.
  virtual float* stage(const Scatter& what) { return what.first; }
  /// Sends the staged slots of all ranks to the owners. Returns the inputs of this rank's folds. For each
  /// range that this rank owns in the bucket, they are the first element in each slot of each rank, in order.
  virtual std::vector<std::vector<const float*>> scatter(const Scatter& what) = 0;
  /// Gathers all slots of a small bucket on every rank, instead of scatter(). Each rank then folds the whole
  /// bucket, and the mean need not be sent. Returns the bucket's first element in each slot of each rank, in
  /// order. Returns nothing if the bucket is not small, and always on a GPU. All ranks get the same answer.
  virtual std::vector<const float*> all_gather(const Scatter&) { return {}; }
  /// Releases other ranks' pages that folds have read, so that they do not count as this rank's memory.
  virtual void release(const Scatter&) {}
  /// Publishes the mean of this rank's owned ranges, which folds have left in the first staged slot.
  virtual void publish(const Scatter&) {}

  /// Elements that are copied from one buffer to another, or to other parts of the same buffer.
  struct Transfer {
    const TransferPlan& plan;
    View from;                ///< this rank's buffer; other ranks reach it cheaply if allocate() made it
    View to;                  ///< from allocate() or allocate_arrivals(), as on every rank
    bool is_settled = false;  ///< `from` has not been written since ranks last met
    bool from_host = false;   ///< `from` is pinned host memory, and `to` is GPU memory
    /// The received elements are needed briefly. So other ranks' pages are released once read, and do not
    /// count as this rank's memory for longer.
    bool is_lent = false;

    bool is_in_place() const { return from.data == to.data; }
    int64_t element_bytes() const { return bytes(from.dtype); }
    const std::byte* source(int64_t element = 0) const { return address(from, element); }
    std::byte* target(int64_t element = 0) const { return address(to, element); }

   private:
    std::byte* address(const View& view, int64_t element) const {
      return static_cast<std::byte*>(view.data) + element * element_bytes();
    }
  };
  /// Sends elements to other ranks, receives theirs, and copies the elements that stay.
  virtual void transfer(const Transfer& what) = 0;
  /// Sets `values` to their sum over ranks, in the transport's order.
  virtual void sum(float* values, int64_t count) = 0;
  /// Completes pending operations. The gradients' stream may use and overwrite their memory from now on.
  virtual void join() {}

  /// Throws the error that occurred in the background, if any.
  virtual void check() {}
  /// Runs `launch`, which starts a recorded step.
  virtual void replay(const std::function<void()>& launch) { launch(); }
};

/// Returns the movement between ranks of one host, which read each other's memory in place.
std::unique_ptr<Movement> move_in_shared_memory(std::shared_ptr<Communicator> communicator);
/// Returns the movement between hosts, by messages. A single rank may use it on any stream. It then sends
/// nothing, and only copies from a GPU's host concurrently with kernels.
std::unique_ptr<Movement> move_as_messages(std::shared_ptr<Communicator> communicator, const Stream& stream);
/// Returns the movement between GPUs, in a queue of higher priority next to `stream`. `gathers_first`: a step
/// meets other ranks before its first reduction.
std::unique_ptr<Movement> move_by_nccl(std::shared_ptr<Communicator> communicator, const BucketPlan& buckets,
                                       const ReductionPlan& plan, const Stream& stream, bool gathers_first);
/// Returns whether a GPU's counter of steps, which wraps around after 2^32, has reached a step.
constexpr bool has_counted(int32_t counter, int64_t step) {
  return static_cast<int32_t>(static_cast<uint32_t>(counter) - static_cast<uint32_t>(step)) >= 0;
}
/// Returns the movement from GPUs through host memory, where `on_host` moves the data.
std::unique_ptr<Movement> move_through_host(std::unique_ptr<Movement> on_host, int rank,
                                            const Stream& stream);

/// Copies the elements that stay on this rank from one buffer to the other. On a GPU the copies are queued on
/// `stream`.
void copy_what_stays(const Movement::Transfer& what, const Stream& stream);

/// A scatter as messages. Data of other ranks arrives at `arrived`, which has room for arriving_elements().
struct ScatterMessages {
  std::vector<SentMessage> sends;
  std::vector<ReceivedMessage> receives;
  std::vector<std::vector<const float*>> inputs;  ///< the result of scatter()

  ScatterMessages(const Movement::Scatter& what, int rank, float* arrived);
};
int64_t arriving_elements(const BucketPlan::Bucket& bucket, const std::vector<int>& slots_of_rank, int rank);

}  // namespace lockstep
