// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/bucket_plan.h"
#include "dist/communicator.h"
#include "dist/replica_tree.h"
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
    bool overlap = false;       ///< reduce on a thread of its own while the last backward still runs
    bool shared_memory = true;  ///< read other ranks' gradients in place where ranks share a host
  };

  GradientReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// The replicas of this rank.
  ReplicaRange replicas() const { return mine_; }
  int slots() const { return slots_; }
  /// The slot that the backward of this rank's k-th replica writes.
  int slot_of(int k) const { return slot_of_[static_cast<size_t>(k)]; }
  /// All slots, one after the other, each `elements` of the plan long.
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// Tells that the k-th replica has written this bucket.
  void complete(int bucket, int k);
  /// Returns when slot 0 holds the mean on this rank and may be read. Throws what went wrong on the way.
  void finish();
  /// Seconds that the last finish() took: communication that no computation hid.
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  float* slot(int rank, int index, const Bucket& bucket) const;
  void plan_fold();
  void merge(const Bucket& bucket, int k);
  void reduce(const Bucket& bucket);
  void reduce_in_place(const Bucket& bucket);
  void reduce_by_messages(const Bucket& bucket);
  void reduce_natively(const Bucket& bucket);
  void meet();
  void reduce_ready_buckets(std::unique_lock<std::mutex>& lock);
  void serve();

  std::shared_ptr<Communicator> communicator_;
  BucketPlan plan_;
  Options options_;
  ReplicaRange mine_;
  std::vector<int> slot_of_;    ///< by local replica
  std::vector<int> additions_;  ///< by local replica: how many the tree allows after it
  int slots_ = 1;
  std::vector<int> inputs_of_rank_;  ///< how many slots of each rank enter the last fold
  std::vector<FoldStep> program_;    ///< over those slots, in the order of their replicas

  std::shared_ptr<SharedMemory> shared_;  ///< the slots of all ranks, or null
  std::unique_ptr<SharedBarrier> meeting_;
  std::shared_ptr<Storage> storage_;
  std::vector<float> arrived_;  ///< partial nodes of other ranks, where they travel as messages

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;  ///< buckets of the last replica
  size_t next_ = 0;          ///< the first bucket that is not reduced yet
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread server_;
  double exposed_seconds_ = 0.0;
};

}  // namespace lockstep
