// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/transport.h"
#include "core/event.h"
#include "dist/leaf_pool.h"
#include "dist/movement.h"

namespace lockstep {

/// Who owns the order of additions over replicas.
enum class Reduction {
  tree,    ///< this engine: the same bits at any number of ranks
  native,  ///< the transport: bits depend on ranks and transport
};

class GradScaler;

/// How replicas, ranks and transports meet. What shows in the bits is said.
struct DataParallelOptions {
  int replicas = 0;                       ///< V, which fixes what a step computes; 0 is the number of ranks
  int accumulate = 1;                     ///< micro-batches a replica, added left to right; in the bits
  Reduction reduction = Reduction::tree;  ///< in the bits
  Shard shard = Shard::none;              ///< what ranks do not all keep
  int group = 0;                          ///< ranks that keep all values between them; 0: all
  Offload offload = Offload::none;        ///< GPU: what lies in the host's memory
  int64_t bucket_bytes = int64_t{25} << 20;
  bool overlap = false;       ///< CPU: reduce on a thread of its own while the last backward still runs
  bool shared_memory = true;  ///< CPU: read other ranks' gradients in place where ranks share a host
  Transport transport = Transport::automatic;  ///< GPU
  GradScaler* scaler = nullptr;                ///< of the same space, or null; its scale shows in the bits
};

/// Averages the gradients of V replicas that N ranks compute: carries out a ReductionPlan, bucket by bucket,
/// always in bucket order.
///
/// A bucket leaves as soon as the last replica of a round has written it. On a GPU all of it is queued beside
/// the backward; on a CPU it happens on a thread of its own, or where the round ends, or, where gradients are
/// cut, at once. The mean ends in slot 0: of what a rank owns, or, with gather_slot(), of everything; where
/// gradients are cut, in shard().
class GradientReducer final {
 public:
  /// All ranks call it.
  GradientReducer(const std::shared_ptr<Communicator>& communicator, const ParameterSpace& space,
                  const Sharding& sharding, const DataParallelOptions& options);
  /// The same for gradients on `stream` that are not cut, in buckets of one's own.
  GradientReducer(std::shared_ptr<Communicator> communicator, BucketPlan buckets,
                  const DataParallelOptions& options, const Stream& stream)
      : GradientReducer(std::move(communicator), std::move(buckets), options, stream, nullptr, true) {}
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  const ReductionPlan& plan() const { return plan_; }
  const BucketPlan& buckets() const { return buckets_; }
  /// All slots, one after the other, each as long as the bucket plan says; nothing to write where gradients
  /// are cut.
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  bool cuts_gradients() const { return leaves_ != nullptr; }
  /// Where gradients are cut: the gradients of a unit of the bucket plan for the backward that runs, once
  /// they may be written.
  const Tensor& leaf(int unit);
  /// Where gradients are cut: what this rank owns of the mean, after finish().
  Tensor shard() const;
  /// The mean of the reserved elements, on rank 0 or, where gradients are not cut, in slot 0.
  Tensor reserved_mean() const { return {leaves_ ? mean_ : storage_, 0, {BucketPlan::reserved}, DType::f32}; }
  float* slot(int index) const {
    return reinterpret_cast<float*>(storage_->data.get()) + index * buckets_.elements;
  }

  /// Returns the slot that the backward of this rank's k-th replica writes, once it may; where gradients are
  /// cut, k counts its micro-batches.
  int begin(int k);
  /// Tells that the k-th has written this bucket; on a GPU, that the kernels which write it are queued.
  void complete(int bucket, int k);
  /// Ends the step: slot 0 holds the mean of this rank's elements, or of all if `everything`, on a GPU for
  /// whatever is queued from now on. Throws what went wrong on the way.
  void finish(bool everything);
  /// The same after finish(false): the rest of the mean too.
  void gather_slot();

  /// Brings pieces of what allocate() has made to where they are wanted; see Movement. All ranks call it.
  void transfer(const Movement::Transfer& route);
  /// Zeroed memory from which that is cheapest; or, `is_common`, one piece for all ranks, null where they
  /// share none. All ranks call it.
  std::shared_ptr<Storage> allocate(int64_t count, bool is_common) const {
    return movement_->allocate(count, is_common);
  }
  Movement& movement() const { return *movement_; }

  /// Throws what went wrong in the background since.
  void check() { movement_->check(); }
  /// How gradients travel, in words.
  const char* transport() const { return movement_->name(); }
  /// True if a step can be recorded as a graph.
  bool is_capturable() const { return is_queued(); }
  /// Runs `launch`, which starts a recorded step, under the deadline of the transport.
  void replay(const std::function<void()>& launch) { movement_->replay(launch); }

  /// Seconds that the host has spent since begin(0) in communication that no computation hid. Where all is
  /// queued on a GPU the host does not wait, and this says nothing.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  using Replica = ReductionPlan::Replica;
  using Round = ReductionPlan::Round;

  bool on_gpu() const { return device_of(stream_) == Device::cuda; }
  bool is_queued() const { return device_of(movement_->stream()) == Device::cuda; }
  const Round& round() const { return plan_.rounds[round_]; }
  Movement::Scatter scatter_of(int bucket) const;

  GradientReducer(std::shared_ptr<Communicator> communicator, BucketPlan buckets,
                  const DataParallelOptions& options, const Stream& stream, const ParameterSpace* cut,
                  bool may_overlap);
  void make_movement(const DataParallelOptions& options);
  bool make_host_movement(bool may_share);
  void make_partial_sums(const ParameterSpace& space);
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
  Stream stream_;  ///< that writes gradients
  BucketPlan buckets_;
  Reduction reduction_;
  ReductionPlan plan_;
  TransferPlan in_place_;                             ///< the parts of slot 0
  std::vector<std::pair<size_t, Replica>> replicas_;  ///< of this rank, with their rounds
  std::shared_ptr<Storage> storage_;                  ///< outlives its registration
  std::unique_ptr<LeafPool> leaves_;  ///< where gradients are cut, as owned_, partial_sums_ and mean_ are
  std::unique_ptr<Movement> movement_;
  Placement owned_;                        ///< of this rank, reserved elements too
  std::shared_ptr<Storage> partial_sums_;  ///< [level][owned_]; level 0 is the mean at last
  std::shared_ptr<Storage> mean_;          ///< that, where the gradients' stream reads it
  Event written_;                          ///< the round's last bucket, by the backward
  /// Whether buckets are gathered as soon as they are reduced: what the last step needed, this one may.
  bool gathers_early_ = false;
  bool releases_ = false;  ///< of what folds have read of other ranks' memory
  double exposed_seconds_ = 0.0;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t round_ = 0;
  std::vector<bool> ready_;  ///< buckets of the round
  size_t next_ = 0;          ///< the first bucket that is not reduced yet
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread server_;
};

}  // namespace lockstep
