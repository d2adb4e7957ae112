// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dist/gradient_reducer.h"

namespace lockstep {

/// Reduces in the memory of hosts: in place where the ranks share one, else by messages.
class HostReducer : public GradientReducer {
 public:
  HostReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options);
  ~HostReducer() override;

  void complete(int bucket, int k) override;
  void finish() override;
  const char* transport() const override {
    return shared_ ? "in shared memory" : communicator_->size() > 1 ? "as messages" : "in place";
  }

 private:
  const float* slot_of_rank(int rank, int index, const Bucket& bucket) const;
  void reduce(const Bucket& bucket);
  void reduce_in_place(const Bucket& bucket);
  void reduce_by_messages(const Bucket& bucket);
  void reduce_natively(const Bucket& bucket);
  void share_slots();
  void meet();
  void reduce_ready_buckets(std::unique_lock<std::mutex>& lock);
  void serve();

  std::shared_ptr<SharedMemory> shared_;  ///< the slots of all ranks, or null
  std::unique_ptr<SharedBarrier> meeting_;
  std::vector<float> arrived_;  ///< partial nodes of other ranks, where they travel as messages

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;  ///< buckets of the last replica
  size_t next_ = 0;          ///< the first bucket that is not reduced yet
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread server_;
};

}  // namespace lockstep
