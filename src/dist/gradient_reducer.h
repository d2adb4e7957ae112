// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/dist/data_parallel_options.h"
#include "lockstep/dist/leaf_pool.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/movement.h"

namespace lockstep {

namespace detail {

/// Averages the gradients of V replicas that N ranks compute. Executes a ReductionPlan bucket by bucket,
/// always in bucket order.
///
/// A bucket can be reduced as soon as the last replica of a round has written it. On a GPU the work is queued
/// and runs concurrently with the backward. A CPU reduces on a thread of its own, or at the end of the round,
/// or at once if gradients are sharded. Slot 0 receives the mean of the owned ranges, or of everything with
/// gather_slot(). If gradients are sharded, shard() has the mean.
class GradientReducer final {
 public:
  /// All ranks call it.
  GradientReducer(const std::shared_ptr<Communicator>& communicator, const ParameterLayout& layout,
                  const Sharding& sharding, const DataParallelOptions& options);
  /// Reduces gradients on `stream` that are not sharded, in the given buckets.
  GradientReducer(std::shared_ptr<Communicator> communicator, BucketPlan buckets,
                  const DataParallelOptions& options, const Stream& stream)
      : GradientReducer(std::move(communicator), std::move(buckets), options, stream, nullptr, true) {}
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const ReductionPlan& plan() const { return plan_; }
  const BucketPlan& buckets() const { return buckets_; }
  /// Returns all slots, one after another, each of buckets().elements. If gradients are sharded it must not
  /// be written.
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  bool cuts_gradients() const { return leaves_ != nullptr; }
  /// Returns the memory for the gradients of a unit of the bucket plan in the running backward. Waits until
  /// it may be written. Only for sharded gradients.
  const Tensor& leaf(int unit);
  /// Returns this rank's owned ranges of the mean, after finish(). Only for sharded gradients.
  Tensor shard() const;
  /// Returns the mean of the reserved elements, which slot 0 has. If gradients are sharded, only rank 0 has
  /// it.
  Tensor reserved_mean() const { return {leaves_ ? mean_ : storage_, 0, {BucketPlan::reserved}, DType::f32}; }
  float* slot(int index) const {
    return reinterpret_cast<float*>(storage_->data.get()) + index * buckets_.elements;
  }

  /// Returns the slot that the backward of this rank's k-th replica writes, once it may be written. If
  /// gradients are sharded, k counts micro-batches.
  int begin(int k);
  /// Marks this bucket as written by the k-th replica. On a GPU, the kernels that write it must be queued.
  void complete(int bucket, int k);
  /// Ends the step. Slot 0 then holds the mean of this rank's owned ranges, or of all elements if
  /// `everything`. On a GPU this is true for all work queued from now on. Throws the errors of the reduction.
  void finish(bool everything);
  /// Gathers the rest of the mean in slot 0, after finish(false).
  void gather_slot();

  /// Transfers elements from memory of allocate() to the ranks that need them; see Movement. All ranks call
  /// it.
  void transfer(const Movement::Transfer& route);
  Movement& movement() const { return *movement_; }
  /// Returns whether all work is queued on a GPU. A step can then be recorded as a graph.
  bool is_queued() const { return device_of(movement_->stream()) == Device::cuda; }
  /// Returns the seconds since begin(0) that the host has spent in communication that no computation hid. If
  /// all work is queued on a GPU, the host does not wait and the value has no meaning.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  using Replica = ReductionPlan::Replica;
  using Round = ReductionPlan::Round;

  bool on_gpu() const { return device_of(stream_) == Device::cuda; }
  const Round& round() const { return plan_.rounds[round_]; }
  Movement::Scatter scatter_of(int bucket) const;

  GradientReducer(std::shared_ptr<Communicator> communicator, BucketPlan buckets,
                  const DataParallelOptions& options, const Stream& stream, const ParameterLayout* cut,
                  bool may_overlap);
  void make_movement(const DataParallelOptions& options);
  bool make_host_movement(bool may_share);
  void make_partial_sums(const ParameterLayout& layout);
  float* partial_sum(int index, int64_t element) const;
  void retire(int bucket);
  std::shared_ptr<Storage> make_slots(bool is_probe);

  void add_slots(const Stream& stream, const Movement::Scatter& what, int last, int times);
  void reduce(int bucket);
  void reduce_natively(const Movement::Scatter& what);
  void fold(const Movement::Scatter& what);
  void fold(const Movement::Scatter& what, Range range, const std::vector<const float*>& arrived);
  void end_round();
  void reduce_ready_buckets(std::unique_lock<std::mutex>& lock);
  void serve();

  std::shared_ptr<Communicator> communicator_;
  Stream stream_;  ///< the stream that writes gradients
  BucketPlan buckets_;
  Reduction reduction_;
  ReductionPlan plan_;
  TransferPlan in_place_;                             ///< gathers slot 0 from the owners
  std::vector<std::pair<size_t, Replica>> replicas_;  ///< this rank's replicas, with their rounds
  std::shared_ptr<Storage> storage_;                  ///< outlives its registration by movement_
  /// Null unless gradients are sharded. Then owned_, partial_sums_ and mean_ are used too.
  std::unique_ptr<LeafPool> leaves_;
  std::unique_ptr<Movement> movement_;
  Placement owned_;                        ///< this rank's owned ranges, including reserved elements
  std::shared_ptr<Storage> partial_sums_;  ///< [index][owned_]; index 0 is the mean at the end
  std::shared_ptr<Storage> mean_;          ///< the mean, where the gradients' stream reads it
  Event written_;                          ///< the backward has written the round's last bucket
  /// True if buckets are gathered as soon as they are reduced. A step expects to need the whole mean if the
  /// last step did.
  bool gathers_early_ = false;
  bool releases_ = false;  ///< other ranks' pages are released after folds have read them
  double exposed_seconds_ = 0.0;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t round_ = 0;
  std::vector<bool> ready_;  ///< [bucket], in this round
  size_t next_ = 0;          ///< the first bucket that is not reduced yet
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread server_;
};

}  // namespace detail

using detail::GradientReducer;

}  // namespace lockstep
