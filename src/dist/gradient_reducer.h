// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dist/bucket_plan.h"
#include "dist/communicator.h"
#include "dist/reduction_plan.h"
#include "dist/transport.h"
#include "tensor/storage.h"

namespace lockstep {

/// Who owns the order of additions over replicas.
enum class Reduction {
  tree,    ///< this engine: the same bits at any number of ranks
  native,  ///< the transport: bits depend on ranks and transport
};

/// Averages the gradients of V replicas that N ranks compute one after the other.
///
/// A rank keeps its replicas' gradients in slots, each as large as the flat space. Replica k writes the slot
/// above those that are pending; as soon as a bucket of it is complete, what the tree allows is added. With
/// the last replica the bucket goes on its way to the other ranks, always in bucket order. The mean ends in
/// slot 0.
class GradientReducer {
 public:
  struct Options {
    int replicas = 1;
    Reduction reduction = Reduction::tree;
    bool overlap = false;       ///< CPU: reduce on a thread of its own while the last backward still runs
    bool shared_memory = true;  ///< CPU: read other ranks' gradients in place where ranks share a host
    Transport transport = Transport::automatic;  ///< GPU
  };

  virtual ~GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// The replicas of this rank.
  ReplicaRange replicas() const { return slot_plan_.mine; }
  int slots() const { return slot_plan_.slots; }
  /// The slot that the backward of this rank's k-th replica writes.
  int slot_of(int k) const { return slot_plan_.slot_of[static_cast<size_t>(k)]; }
  /// All slots, one after the other, each `elements` of the plan long.
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// Tells that the k-th replica has written this bucket; on a GPU, that the kernels which write it are
  /// queued.
  virtual void complete(int bucket, int k) = 0;
  /// Ends the step: slot 0 holds the mean, on a GPU for whatever is queued from now on. Throws what went
  /// wrong on the way.
  virtual void finish() = 0;
  /// Throws what went wrong in the background since.
  virtual void check() {}

  /// How gradients travel, in words.
  virtual const char* transport() const = 0;
  /// True if a step can be recorded as a graph.
  virtual bool is_capturable() const { return false; }
  /// Runs `launch`, which starts a recorded step, under this reducer's deadline.
  virtual void replay(const std::function<void()>& launch) { launch(); }

  /// Seconds that the host spent in the last finish(): communication that no computation hid. On a GPU that
  /// reduces in its own queue the host does not wait, and this says nothing.
  double exposed_seconds() const { return exposed_seconds_; }

 protected:
  GradientReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options);

  int64_t slots_bytes() const { return slots() * plan_.elements * 4; }
  /// Where the bucket lies in one of this rank's slots.
  float* slot(int index, const Bucket& bucket) const {
    return reinterpret_cast<float*>(storage_->data.get()) + index * plan_.elements + bucket.begin;
  }
  float mean_factor() const { return 1.0f / static_cast<float>(options_.replicas); }
  /// What the tree allows after the k-th replica, on that stream.
  void merge(const Stream& stream, const Bucket& bucket, int k) const;
  /// slot 0 += the other pending slots, from left to right: what a native reduction starts from.
  void add_pending(const Stream& stream, const Bucket& bucket) const;
  /// out[0:count) = scale * the program over inputs[k][0:count).
  static void fold(const Stream& stream, const std::vector<int>& program,
                   const std::vector<const float*>& inputs, float* out, int64_t count, float scale);
  /// Elements [first, second) of `count` that a rank finishes: equal parts on cache lines.
  std::pair<int64_t, int64_t> segment(int64_t count, int rank) const;
  /// Folds what the ranks are left with of this rank's segment into slot 0.
  void finish_segment(const Stream& stream, const Bucket& bucket,
                      const std::vector<const float*>& inputs) const;

  /// Partial nodes on their way to the owners of their segments, and the finished segments on their way back.
  struct SegmentExchange {
    std::vector<Message> sends, receives;
    std::vector<const float*> inputs;  ///< of the fold between the two
    std::vector<Message> results, others;
  };
  /// Where each rank has made its own additions. What other ranks send is kept at `arrived`, which has room
  /// for arriving_elements().
  SegmentExchange exchange_of(const Bucket& bucket, float* arrived) const;
  int64_t arriving_elements(const Bucket& bucket) const;

  std::shared_ptr<Communicator> communicator_;
  BucketPlan plan_;
  Options options_;
  SlotPlan slot_plan_;
  LastFold last_fold_;
  std::shared_ptr<Storage> storage_;
  double exposed_seconds_ = 0.0;
};

/// The reducer for gradients of parameters on that stream: the CPU's, or the one for the transport that
/// choose_transport() finds. All ranks call it.
std::unique_ptr<GradientReducer> make_gradient_reducer(std::shared_ptr<Communicator> communicator,
                                                       const BucketPlan& plan,
                                                       GradientReducer::Options options,
                                                       const Stream& stream);

}  // namespace lockstep
