// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"
#include "lockstep/net/addresses.h"
#include "lockstep/train/rank_table.h"

namespace lockstep {

enum class Verdict { ok, warning, problem };

/// The result of one check.
struct Finding {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string found;
  std::string advice = {};  ///< what to do; empty if all is well
};

/// Returns a line for each finding. A finding with advice has a second line for it.
std::string to_text(const std::vector<Finding>& findings);

/// Returns {"findings": [{"name", "verdict", "found", "advice"}, ...], "problems": n, "warnings": n}.
std::string to_json(const std::vector<Finding>& findings);
/// Reads a text that to_json() wrote.
std::vector<Finding> findings_from_json(const std::string& text);

/// The cores of this machine, the ones that this process may use, and a container's quota of them.
struct Cores {
  int of_host = 1;
  int usable = 1;    ///< in the affinity mask
  double quota = 0;  ///< limit of the control group, in cores; 0: none

  static Cores of_this_process();
};

/// Checks whether the ranks of a host, with train.threads each, fit on the cores that they may use.
Finding check_binding(const Job& job, const Cores& cores, int ranks_of_host);

/// Checks whether the kernel reports that the clock follows a time server.
Finding check_clock();

/// Checks whether the user is root: mpirun refuses root unless it is allowed.
Finding check_user();

/// Checks the driver, the GPUs that this process sees, whether this build can use them, and NCCL on one.
std::vector<Finding> check_gpus(const Job& job);

/// The argument that starts a program as a probe of check_ranks(). The program then calls answer_probe().
constexpr const char* probe_argument = "--probe";

/// Runs a probe. It meets the other ranks, and rank 0 prints a line for check_ranks(). Returns the exit code.
int answer_probe();

/// Checks whether there is an mpirun, and whether it belongs to the MPI library of this program.
Finding check_mpirun(const std::string& library);

/// Checks whether lockrun starts two ranks itself, and they exchange a text within a deadline. `program` is
/// the path of this program; lockrun is beside it.
Finding check_lockrun(const std::string& program, double deadline_seconds);

/// Checks whether the ranks of a plain srun find each other. Returns nothing if Slurm does not answer.
std::vector<Finding> check_srun();

/// Checks whether two ranks start and exchange a text within a deadline, and how many cores a single rank
/// gets. `program` is the path of this program.
std::vector<Finding> check_ranks(const std::string& program, double deadline_seconds);

/// Connects to an address within three seconds. Returns the reason if that fails, else an empty text.
std::string try_to_connect(const Endpoint& address);

/// Checks whether this host's name leads to an address that other nodes can use.
Finding check_host_name(const std::string& name);

/// Checks whether this process can listen on "host:port" and reach itself there. If `address` is empty, uses
/// this host's first address and a port that the system chooses.
Finding check_port(const std::string& address);

Finding check_ipv6();

/// Returns about how many parameters the GPT of a configuration has.
int64_t estimate_parameters(const Job& job);

/// Checks whether the folder of a key can be written, how fast (with fsync), and whether `wanted_bytes` fit.
/// Leaves nothing behind and creates no folder.
Finding check_folder(const std::string& key, const std::string& path, int64_t wanted_bytes);

/// Checks whether ranks of a host can share `wanted_bytes` of memory below `folder` (/dev/shm).
Finding check_shared_memory(const std::string& folder, int64_t wanted_bytes);

/// Checks log.dir and shared memory for a configuration on a host with `ranks_of_host` ranks. If
/// `writes_snapshots` (on the host of rank 0), also checks snapshot.path.
std::vector<Finding> check_storage(const Job& job, const std::string& shared_memory, int ranks_of_host,
                                   bool writes_snapshots);

/// Reports the host and the device of each rank.
Finding judge_places(const std::vector<RankDevice>& ranks);
/// Checks whether the ranks are equally fast. They are if their programs were built for the same instructions
/// and their processors are alike. The results are bit-identical on all processors.
Finding judge_processors(const std::vector<RankDevice>& ranks,
                         const std::vector<std::string>& instruction_sets);
/// Checks how far the ranks' clocks are apart. `ahead_seconds`: each one's, compared with rank 0's.
Finding judge_clocks(const std::vector<RankDevice>& ranks, const std::vector<double>& ahead_seconds);

struct DoctorOptions {
  std::string program;      ///< path of the program whose --probe answers
  std::string listen = {};  ///< host:port to try; empty: this host, any port
  std::string shared_memory = "/dev/shm";
  double deadline_seconds = 60.0;  ///< limit of each operation that ranks do together
};

/// Searches for problems of a run with this configuration. A process that was started by hand starts ranks of
/// its own; launched ranks are checked with their hosts. All ranks call it; rank 0 gets the result.
std::vector<Finding> examine(const Job& job, const World& world, const DoctorOptions& options);

}  // namespace lockstep
