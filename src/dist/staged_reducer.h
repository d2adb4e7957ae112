// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/event.h"
#include "dist/device_reducer.h"
#include "dist/host_reducer.h"

namespace lockstep {

/// Ranks whose GPUs cannot speak to each other, or that share one: what each is left with goes to its host,
/// hosts reduce as they do for CPUs, and the mean comes back. The host waits in finish().
class StagedReducer : public DeviceReducer {
 public:
  StagedReducer(std::shared_ptr<Communicator> communicator, const BucketPlan& plan, Options options,
                const Stream& stream);

  void finish() override;
  const char* transport() const override { return "through the host"; }
  bool is_capturable() const override { return false; }

 protected:
  void reduce(int bucket) override;

 private:
  HostReducer on_host_;
  Stream copies_;                      ///< a queue of their own, beside the backward
  std::shared_ptr<std::byte> pinned_;  ///< as large as all slots
  std::vector<Event> written_;         ///< by bucket: the backward has written it
  std::vector<Event> arrived_;         ///< by bucket: it is in pinned memory
};

}  // namespace lockstep
