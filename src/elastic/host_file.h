// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>

#include "core/clock.h"
#include "elastic/launch_options.h"
#include "elastic/nodes.h"

namespace lockstep {

/// A line of a host file.
struct Host {
  std::string name;
  int slots = 1;

  bool operator==(const Host&) const = default;
};

/// The hosts of a file as mpirun reads it: "name [slots=N]", "#" begins a comment. UserError names file and
/// line.
std::vector<Host> read_host_file(const std::string& path);

/// The hosts of a file, which is read before every generation, so that a run grows and shrinks with it. Hosts
/// that cannot be reached (by ssh, or what OMPI_MCA_plm_rsh_agent names) are left out, and that is said.
class HostFile : public Nodes {
 public:
  explicit HostFile(const LaunchOptions& options);

  std::optional<Placement> gather(double seconds) override;
  int events() const override { return -1; }
  std::optional<NodeEvent> next_event() override { return std::nullopt; }
  void end_generation() override { gathering_since_.reset(); }
  void finish(int) override {}
  const Secret& secret() const override { return secret_; }

 private:
  Placement placement_on(const std::vector<Host>& hosts) const;

  const LaunchOptions& options_;
  Secret secret_ = Secret::random();
  std::set<std::string> unreachable_;  ///< as last said
  std::optional<Clock::time_point> gathering_since_;
};

}  // namespace lockstep
