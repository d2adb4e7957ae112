// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "elastic/launch_options.h"
#include "elastic/nodes.h"

namespace lockstep {

/// This host's address for keepers on other hosts: --local-addr, or the first that they can reach. UserError.
std::string reachable_address(const NodeOptions& nodes);

/// Hosts that stay the same for the whole run.
class FixedNodes : public Nodes {
 public:
  /// This host alone.
  static FixedNodes this_host(const LaunchOptions& options);
  /// The nodes of the Slurm allocation around this process.
  static FixedNodes slurm_allocation(const LaunchOptions& options);

  std::optional<Placement> gather(double) override { return placement_; }
  int events() const override { return -1; }
  std::optional<NodeEvent> next_event() override { return std::nullopt; }
  void end_generation() override {}
  void finish(int) override {}
  const Secret& secret() const override { return secret_; }

 private:
  explicit FixedNodes(Placement placement);

  Secret secret_ = Secret::random();
  Placement placement_;
};

}  // namespace lockstep
