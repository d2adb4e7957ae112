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

/// Where one attempt runs, and what its launcher has to be told for it.
struct JobLayout {
  struct Host {
    std::string name;
    int ranks = 1;
    std::string mpirun_name = {};  ///< what mpirun calls it; empty: the launcher knows the hosts itself
  };

  std::vector<Host> hosts = {};                         ///< in the order of the ranks
  std::vector<std::string> mpirun_arguments = {};       ///< how its daemons start
  std::map<std::string, std::string> environment = {};  ///< besides the launcher's; with the keepers' secret
  std::string address = "127.0.0.1";  ///< where keepers on every node can reach the supervisor

  int ranks() const;
  /// False if a launcher has to reach another host.
  bool is_on_this_host() const;
  /// Leaves out the last ranks beyond so many, and the hosts that then have none.
  void limit(int most_ranks);
};

/// What happened to a node, or what somebody asked for there.
struct NodeEvent {
  enum class Kind { joined, lost, stop_requested };

  Kind kind;
  std::string node;         ///< "node 1 (host-b, 10.0.0.2)"
  std::string reason = {};  ///< why it was lost, in words
};

/// The hosts of a run as its supervisor sees them.
class Nodes {
 public:
  virtual ~Nodes() = default;

  /// Waits at most so long until an attempt can start; nothing if it cannot yet. Throws Error, naming who
  /// is missing, once it has waited longer than the run may.
  virtual std::optional<JobLayout> gather(double seconds) = 0;
  /// For poll(): readable while an event waits.
  virtual int events() const { return -1; }
  virtual std::optional<NodeEvent> next_event() { return std::nullopt; }
  /// Ends what still runs of the attempt on other nodes.
  virtual void end_generation() {}
  /// The run is over: every node's lockrun leaves with this code.
  virtual void finish(int) {}
  /// What keepers prove to know.
  virtual const Secret& secret() const = 0;
};

/// True if the run is to use the Slurm allocation around this process.
bool uses_slurm(const LaunchOptions& options);

/// Hosts that need not meet: those of a host file, which is read before every attempt, so that a run grows
/// and shrinks with it; else the nodes of the Slurm allocation; else this host alone.
class ListedNodes : public Nodes {
 public:
  /// UserError, naming the line, if the host file cannot be read.
  explicit ListedNodes(const LaunchOptions& options);

  std::optional<JobLayout> gather(double seconds) override;
  const Secret& secret() const override { return secret_; }

 private:
  /// True if there are enough hosts. Throws Error once there were too few for too long.
  bool take_hosts_of_file(JobLayout& placement);

  const LaunchOptions& options_;
  Secret secret_ = Secret::random();
  std::optional<Clock::time_point> gathering_since_;
};

/// Who starts the processes of an attempt.
enum class Launcher { mpirun, srun, none };

/// srun in a Slurm allocation unless hosts are named, else mpirun, else none for one rank. UserError if that
/// cannot be.
Launcher choose_launcher(const LaunchOptions& options, const JobLayout& placement);
/// UserError unless the mpirun in PATH can start ranks on several nodes. Open MPI 5 cannot: its launcher
/// calls agents in another way.
void require_mpirun_for_several_nodes();
const char* name(Launcher launcher);

/// The command line that starts a keeper for each rank.
std::vector<std::string> launch_command(Launcher launcher, const JobLayout& placement,
                                        const std::string& lockrun, const std::string& endpoint);

/// What the launcher needs in its environment on this machine; `folder` takes its own files.
std::map<std::string, std::string> launch_environment(const JobLayout& placement, const std::string& folder);

/// What keeps NCCL on the interface of one of this host's addresses, unless the user has chosen one.
std::map<std::string, std::string> nccl_environment(const std::string& address);

}  // namespace lockstep
