// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "elastic/launch_options.h"
#include "net/secret.h"

namespace lockstep {

/// The hosts of an attempt, and the launcher's settings for them.
struct JobLayout {
  struct Host {
    std::string name;
    int ranks = 1;
    std::string mpirun_name = {};  ///< its name for mpirun; empty: the launcher knows the hosts
  };

  std::vector<Host> hosts = {};                         ///< in the order of ranks
  std::vector<std::string> mpirun_arguments = {};       ///< arguments that say how its daemons start
  std::map<std::string, std::string> environment = {};  ///< added for the launcher; has the keepers' secret
  std::string address = "127.0.0.1";  ///< the supervisor's address for keepers on every node

  int ranks() const;
  /// Returns false if the launcher has to reach another host.
  bool is_on_this_host() const;
  /// Removes the last ranks beyond `most_ranks`, and hosts without ranks.
  void limit(int most_ranks);
};

/// An event on a node: it joined, was lost, or received a request to stop.
struct NodeEvent {
  enum class Kind { joined, lost, stop_requested };

  Kind kind;
  std::string node;         ///< "node 1 (host-b, 10.0.0.2)"
  std::string reason = {};  ///< why it was lost, as text
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
  const Secret& secret() const override { return secret_; }

 private:
  /// Reads the host file into `placement`. Returns false for too few hosts; throws Error after the timeout.
  bool take_hosts_of_file(JobLayout& placement);

  const LaunchOptions& options_;
  Secret secret_ = Secret::random();
  std::optional<Clock::time_point> gathering_since_;
};

/// The program that starts the processes of an attempt.
enum class Launcher { mpirun, srun, none };

/// Returns srun in a Slurm allocation unless hosts are named. Otherwise returns mpirun, or none for a single
/// rank without mpirun. Throws UserError if the launcher cannot be used.
Launcher choose_launcher(const LaunchOptions& options, const JobLayout& placement);
/// Throws UserError unless the mpirun in PATH can use launch agents on other nodes. Open MPI 5 cannot.
void require_mpirun_for_several_nodes();
const char* name(Launcher launcher);

/// Returns the command line that starts a keeper for each rank.
std::vector<std::string> launch_command(Launcher launcher, const JobLayout& placement,
                                        const std::string& lockrun, const std::string& endpoint);

/// Returns the launcher's variables on this machine. If all ranks are here, its files are in `folder`.
std::map<std::string, std::string> launch_environment(const JobLayout& placement, const std::string& folder);

/// Returns variables that limit NCCL to the interface with this address. Empty if the user has chosen one.
std::map<std::string, std::string> nccl_environment(const std::string& address);

}  // namespace lockstep
