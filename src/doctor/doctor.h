// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"
#include "net/addresses.h"
#include "train/rank_table.h"

namespace lockstep {

enum class Verdict { ok, warning, problem };

/// What one check says.
struct Finding {
  std::string name;
  Verdict verdict = Verdict::ok;
  std::string found;
  std::string advice = {};  ///< what to do; empty if all is well
};

/// A line for each, and one with the advice below those that have any.
std::string to_text(const std::vector<Finding>& findings);

/// {"findings": [{"name", "verdict", "found", "advice"}, ...], "problems": n, "warnings": n}
std::string to_json(const std::vector<Finding>& findings);
/// Reads what to_json() wrote.
std::vector<Finding> findings_from_json(const std::string& text);

/// The cores of this machine, those that this process may use, and what a container's quota leaves of them.
struct Cores {
  int of_host = 1;
  int usable = 1;    ///< in the affinity mask
  double quota = 0;  ///< of the control group, in cores; 0: no limit

  static Cores of_this_process();
};

/// Whether so many ranks of a host, with train.threads each, fit on the cores they may use.
Finding check_binding(const Config& config, const Cores& cores, int ranks_of_host);

/// Whether the kernel says that the clock follows a time server.
Finding check_clock();

/// Running as root: mpirun refuses it unless told otherwise.
Finding check_user();

/// The driver, the GPUs that this process sees and whether this build can use them, and NCCL, which is
/// initialised on the first of them.
std::vector<Finding> check_gpus(const Config& config);

/// The word after which a program that calls this passes its start on to answer_probe().
constexpr const char* probe_argument = "--probe";

/// What a rank that was started as a probe does: it meets the others, and rank 0 prints a line that the
/// checks below read. Returns the exit code.
int answer_probe();

/// Whether there is an mpirun, and whether it belongs to the library of this program.
Finding check_mpirun(const std::string& library);

/// Whether the ranks of a plain srun find each other; nothing where no Slurm answers.
std::vector<Finding> check_srun();

/// Whether two ranks start and exchange a text within a deadline, and how many cores a single rank would get.
/// `program` is the path of this one.
std::vector<Finding> check_ranks(const std::string& program, double deadline_seconds);

/// Why no connection comes about within three seconds; empty if one did.
std::string try_to_connect(const Endpoint& address);

/// Whether this host's name leads to an address that other nodes can use.
Finding check_host_name(const std::string& name);

/// Whether this process can listen on "host:port" and reach itself there; empty: on this host's first address
/// at a port that the system chooses.
Finding check_port(const std::string& address);

Finding check_ipv6();

/// About how many parameters the GPT of a configuration has.
int64_t estimate_parameters(const Config& config);

/// Whether a folder that a key names can be written, how fast (with fsync), and whether `wanted_bytes` fit.
/// Leaves nothing behind, and makes no folder.
Finding check_folder(const std::string& key, const std::string& path, int64_t wanted_bytes);

/// Whether memory that ranks of a host share can be had below `folder` (/dev/shm), and enough of it.
Finding check_shared_memory(const std::string& folder, int64_t wanted_bytes);

/// log.dir, shared memory and, on the host of rank 0, which alone writes there, snapshot.path, as a
/// configuration needs them on a host with so many ranks.
std::vector<Finding> check_storage(const Config& config, const std::string& shared_memory, int ranks_of_host,
                                   bool writes_snapshots);

/// Who runs where.
Finding judge_places(const std::vector<RankDevice>& ranks);
/// Ranks give the same bits on all processors. They are equally fast if their programs were built for the
/// same instructions and their processors are alike.
Finding judge_processors(const std::vector<RankDevice>& ranks,
                         const std::vector<std::string>& instruction_sets);
/// `ahead_seconds`: by how much each rank's clock is ahead of rank 0's.
Finding judge_clocks(const std::vector<RankDevice>& ranks, const std::vector<double>& ahead_seconds);

/// What only ranks together can find out: places, processors, clocks, and whether every host reaches every
/// other at each of its addresses. All ranks call it; rank 0 gets the findings.
std::vector<Finding> check_together(const World& world);

/// Whether no rank before this one runs on its host. All ranks call it.
bool is_first_of_host(const World& world);

/// All ranks' findings on rank 0, each with its host's name where there are several. All ranks call it.
std::vector<Finding> gather_findings(const World& world, const std::vector<Finding>& mine);

struct DoctorOptions {
  std::string program;      ///< path of the program whose --probe answers
  std::string listen = {};  ///< host:port to try; empty: this host, any port
  std::string shared_memory = "/dev/shm";
  double deadline_seconds = 60.0;  ///< for anything that ranks do together
};

/// Looks for what would go wrong with a run of this configuration. Started by hand, it starts ranks of its
/// own; as several ranks, it looks at them and their hosts. All ranks call it; rank 0 gets the findings.
std::vector<Finding> examine(const Config& config, const World& world, const DoctorOptions& options);

}  // namespace lockstep
