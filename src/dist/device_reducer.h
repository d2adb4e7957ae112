// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "dist/gradient_reducer.h"

namespace lockstep {

/// Reduces in the memory of a GPU, in the queue that also runs the backward; the host never waits. This class
/// is the whole reducer for one rank; others derive from it what happens between ranks.
class DeviceReducer : public GradientReducer {
 public:
  DeviceReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options,
                const Stream& stream);

  void complete(int bucket, int k) override;
  void finish() override;
  const char* transport() const override { return "in place"; }
  bool is_capturable() const override { return true; }

 protected:
  /// `memory`: of slots_bytes().
  DeviceReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options,
                const Stream& stream, std::shared_ptr<std::byte> memory);

  /// Queues the reduction of a bucket that the last replica has written; called in bucket order.
  virtual void reduce(int bucket);
  /// Makes the stream wait for all reductions of the step.
  virtual void join() {}

  const Stream& stream() const { return storage_->stream; }
  const Bucket& bucket_at(int bucket) const { return plan_.buckets[static_cast<size_t>(bucket)]; }

 private:
  std::vector<bool> ready_;  ///< buckets of the last replica
  int next_ = 0;             ///< the first bucket whose reduction is not queued yet
};

}  // namespace lockstep
