// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/elastic/launch_options.h"
#include "lockstep/net/secret.h"

namespace lockstep {

/// The hosts of an attempt, and the launcher's settings for them.
struct JobLayout {
  struct Host {
    std::string name;  ///< empty: a host of Slurm's allocation
    int ranks = 1;
    std::string mpirun_name = {};  ///< its name in the host file; empty: not from a host file
    std::string process = {};      ///< NodeFacts::process of its lockrun; empty: it has none, or is node 0
  };

  std::vector<Host> hosts = {};                         ///< in the order of ranks
  bool runs_lockrun = false;                            ///< a lockrun of this run is on every host
  std::map<std::string, std::string> environment = {};  ///< added for the launcher
  std::string address = "127.0.0.1";  ///< the supervisor's address for keepers on every node

  int ranks() const;
  /// Returns the host of a rank.
  const Host& host_of(int rank) const;
  /// Returns the hosts with the numbers of their ranks.
  std::vector<RankMap::Node> nodes() const;
  /// Returns false if the launcher has to reach another host.
  bool is_on_this_host() const;
  /// Removes the last ranks beyond `most_ranks`, and hosts without ranks.
  void limit(int most_ranks);
};

/// An event on a node: it joined, was lost or received a request to stop, or its lockrun_host ended.
struct NodeEvent {
  enum class Kind { joined, lost, stop_requested, host_ended };

  Kind kind;
  std::string node;         ///< "node 1 (host-b, 10.0.0.2)"
  std::string reason = {};  ///< why it was lost, or how its host ended
};

/// The supervisor's interface to the hosts of a run.
class Nodes {
 public:
  virtual ~Nodes() = default;

  /// Waits at most `seconds` until an attempt can start. Returns nothing if it cannot start yet. Throws Error
  /// naming the missing nodes after the rendezvous timeout.
  virtual std::optional<JobLayout> gather(double seconds) = 0;
  /// Returns a descriptor for poll(): readable while an event waits.
  virtual int events() const { return -1; }
  virtual std::optional<NodeEvent> next_event() { return std::nullopt; }
  /// Starts lockrun_host on the other ones of the first `nodes` nodes that gather() returned. The supervisor
  /// waits for them at `endpoint`.
  virtual void start_hosts(const std::string& /*endpoint*/, int /*nodes*/) {}
  /// Leaves a host of the last attempt out of later ones. Returns false if it cannot be left out, or too few
  /// hosts would remain.
  virtual bool leave_out(const JobLayout::Host& /*host*/) { return false; }
  /// Ends the attempt's remaining processes on other nodes.
  virtual void end_generation() {}
  /// Ends the run: the lockrun of every node exits with this code.
  virtual void finish(int) {}
  /// The secret that keepers must prove to know.
  virtual const Secret& secret() const = 0;
};

/// Returns true if the run uses the Slurm allocation of this process.
bool uses_slurm(const LaunchOptions& options);

/// Hosts that are known without a rendezvous: those of a host file, else of the Slurm allocation, else this
/// host alone. The host file is read before every attempt, so a run grows and shrinks with it.
class ListedNodes : public Nodes {
 public:
  /// Throws UserError naming the line if the host file cannot be read.
  explicit ListedNodes(const LaunchOptions& options);

  std::optional<JobLayout> gather(double seconds) override;
  bool leave_out(const JobLayout::Host& host) override;
  const Secret& secret() const override { return secret_; }

 private:
  /// Returns the hosts of the host file that are not left out.
  std::vector<JobLayout::Host> usable_hosts() const;
  /// Reads the host file into `placement`. Returns false for too few hosts; throws Error after the timeout.
  bool take_hosts_of_file(JobLayout& placement);

  const LaunchOptions& options_;
  Secret secret_ = Secret::random();
  std::set<std::string> left_out_;  ///< names in the host file
  std::optional<Clock::time_point> gathering_since_;
};

}  // namespace lockstep
