// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/event.h"
#include "dist/device_reducer.h"
#include "dist/nccl_communicator.h"
#include "dist/watchdog.h"

namespace lockstep {

/// Ranks with a GPU each: buckets are exchanged and folded on a queue of their own, which has precedence,
/// while the backward goes on. The two queues meet by events alone, so all of it can be recorded as a graph.
class NcclReducer : public DeviceReducer {
 public:
  NcclReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options,
              const Stream& stream);

  void finish() override;
  const char* transport() const override { return "by NCCL"; }
  void check() override { watchdog_->check(); }
  void replay(const std::function<void()>& launch) override;

 protected:
  void reduce(int bucket) override;
  void join() override;

 private:
  NcclReducer(std::unique_ptr<NcclCommunicator> nccl, std::shared_ptr<Communicator> communicator,
              const BucketPlan& plan, Options options, const Stream& stream);

  void reduce_by_tree(const Bucket& bucket);
  void reduce_natively(const Bucket& bucket);
  void gather(const Bucket& bucket, const SegmentExchange& exchange);
  void count_reduction();

  std::shared_ptr<std::byte> arrived_;  ///< partial nodes of other ranks; outlives its registration
  std::unique_ptr<NcclCommunicator> nccl_;
  Stream communication_;
  Event written_;  ///< the backward has written a bucket
  Event reduced_;  ///< all buckets are in place

  // How many steps have come to their first reduction, counted by the GPU itself: inside a recorded step
  // there is nothing else by which the host could tell that it waits for other ranks.
  std::shared_ptr<std::byte> counter_;       ///< the count, and the one that is added to it, as f32
  std::shared_ptr<std::byte> counted_here_;  ///< the count as last copied to the host
  int64_t steps_ = 0;                        ///< started by the host
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace lockstep
