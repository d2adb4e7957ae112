// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "dist/bucket_plan.h"
#include "dist/reduction_plan.h"
#include "dist/transfer_plan.h"
#include "tensor/storage.h"

namespace lockstep {

/// How gradients and values travel between ranks; what is added to what is the plan's business
/// (reduction_plan.h). All ranks call the same operations in the same order. Where stream() is a GPU's,
/// operations are queued.
class Movement {
 public:
  /// A bucket on its way to the owners of its elements.
  struct Scatter {
    const BucketPlan::Bucket& bucket;
    const std::vector<int>& slots_of_rank;  ///< how many slots each rank hands over
    float* first;                           ///< where this rank's first slot has the bucket's first element
    int written;                            ///< how many slots its replicas have written
    int64_t stride;                         ///< from slot to slot
    bool begins_step;

    float* at(int slot, int64_t element) const {
      return first + slot * stride + (element - bucket.range.begin);
    }
  };

  virtual ~Movement() = default;
  /// In words: "by NCCL".
  virtual const char* name() const = 0;
  /// Where folds run.
  virtual const Stream& stream() const = 0;
  /// Where what transfer() brings arrives.
  virtual const Stream& arrivals() const { return stream(); }

  /// `count` zeroed floats for what travels, from where others reach it cheapest; null on all ranks where not
  /// even the first such memory can be had. `is_common`: one piece for all ranks, or null. All ranks call it
  /// with the same count.
  virtual std::shared_ptr<Storage> allocate(int64_t count, bool is_common) = 0;
  /// Memory in the queue of `stream` for what transfer() brings. No other rank reads it. Its contents are
  /// undefined. All ranks call it with the same number of bytes.
  virtual std::shared_ptr<Storage> allocate_arrivals(int64_t bytes, const Stream& stream) {
    return Storage::make(bytes, stream);
  }

  /// Tells that the kernels which write a bucket's slots are queued; copies may begin.
  virtual void enqueue(const Scatter&) {}
  /// Returns where folds find this rank's slots: in their place, or in a copy which is there by then.
  virtual float* stage(const Scatter& what) { return what.first; }
  /// Brings what all ranks hand over, from where it has landed. Returns what the folds of this rank read: for
  /// each range that it owns of the bucket, the first element in each slot of each rank, in order.
  virtual std::vector<std::vector<const float*>> scatter(const Scatter& what) = 0;
  /// In the place of scatter(), where a bucket is so small that each rank had better fold all of it, so that
  /// nothing of the mean has to be brought: its first element in each slot of each rank, in order. Else
  /// nothing; the same on all ranks, and never on a GPU.
  virtual std::vector<const float*> all_gather(const Scatter&) { return {}; }
  /// Tells that folds have read what others have handed over, which need not count as this rank's memory.
  virtual void release(const Scatter&) {}
  /// Tells that folds have left the mean of what this rank owns in the first slot, as it was landed.
  virtual void publish(const Scatter&) {}

  /// Elements of one buffer on their way into another, or into other parts of the same.
  struct Transfer {
    const TransferPlan& plan;
    const std::byte* from;  ///< this rank's buffer, which allocate() has made, or nobody gets it cheaply
    int64_t from_bytes;     ///< its size
    std::byte* to;          ///< from allocate() or allocate_arrivals(), as on every rank
    int64_t element_bytes = 4;
    bool is_settled = false;  ///< since ranks last met nobody has written what is read
    bool from_host = false;   ///< `from` is pinned memory of the host, and `to` a GPU's
    bool is_lent = false;  ///< what arrives is forgotten soon, and must not count as this rank's for longer
  };
  /// Brings what other ranks send, and what stays.
  virtual void transfer(const Transfer& what) = 0;
  /// values = the sum over ranks, in an order of the transport's.
  virtual void sum(float* values, int64_t count) = 0;
  /// Ends what was begun: the gradients' stream may use, and overwrite, all of it from now on.
  virtual void join() {}

  /// Throws what went wrong in the background.
  virtual void check() {}
  /// Runs `launch`, which starts a recorded step.
  virtual void replay(const std::function<void()>& launch) { launch(); }
};

/// Between ranks of one host, which read each other's memory in place.
std::unique_ptr<Movement> move_in_shared_memory(std::shared_ptr<Communicator> communicator);
/// Between hosts; for one rank, on any stream, nothing has to move, or only from a GPU's host, beside its
/// kernels.
std::unique_ptr<Movement> move_as_messages(std::shared_ptr<Communicator> communicator, const Stream& stream);
/// Between GPUs, in a queue beside `stream` that has precedence. `gathers_first`: a step meets other ranks
/// before its first reduction.
std::unique_ptr<Movement> move_by_nccl(std::shared_ptr<Communicator> communicator, const BucketPlan& buckets,
                                       const ReductionPlan& plan, const Stream& stream, bool gathers_first);
/// From a GPU's queue through memory of the host, where `on_host` takes over.
std::unique_ptr<Movement> move_through_host(std::unique_ptr<Movement> on_host, int rank,
                                            const Stream& stream);

/// What a rank has for itself in both buffers; on a GPU in the queue of `stream`.
void copy_what_stays(const Movement::Transfer& what, const Stream& stream);

/// A scatter as messages. What other ranks send arrives at `arrived`, with room for arriving_elements().
struct ScatterMessages {
  std::vector<Message> sends, receives;
  std::vector<std::vector<const float*>> inputs;  ///< what scatter() returns

  ScatterMessages(const Movement::Scatter& what, int rank, float* arrived);
};
int64_t arriving_elements(const BucketPlan::Bucket& bucket, const std::vector<int>& slots_of_rank, int rank);

}  // namespace lockstep
