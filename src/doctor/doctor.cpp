// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.h"

#include <limits>
#include <utility>

#include "comm/local_communicator.h"
#include "comm/mpi_communicator.h"
#include "core/host.h"
#include "core/thread_pool.h"
#include "doctor/gpu_checks.h"
#include "doctor/host_checks.h"
#include "doctor/mpi_checks.h"
#include "doctor/network_checks.h"
#include "doctor/rank_checks.h"
#include "doctor/storage_checks.h"

namespace lockstep {
namespace {

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  for (Finding& finding : more) findings.push_back(std::move(finding));
}

/// What one process can find out about its host.
std::vector<Finding> examine_host(const Config& config, const DoctorOptions& options, int ranks,
                                  bool writes_snapshots) {
  std::vector<Finding> findings = check_gpus(config);
  findings.push_back(check_host_name(host_name()));
  findings.push_back(check_port(options.listen));
  findings.push_back(check_ipv6());
  findings.push_back(check_binding(config, Cores::of_this_process(), ranks));
  findings.push_back(check_clock());
  append(findings, check_storage(config, options.shared_memory, ranks, writes_snapshots));
  return findings;
}

}  // namespace

std::vector<Finding> examine(const Config& config, const World& world, const DoctorOptions& options) {
  world.communicator().set_timeout(options.deadline_seconds);
  std::vector<Finding> findings;
  // A launcher may have started just one rank, so the size of the world does not tell.
  const bool is_launched = dynamic_cast<LocalCommunicator*>(&world.communicator()) == nullptr;
  if (is_launched) {
    findings = check_together(world);
    const bool speaks = is_first_of_host(world);
    // The checks of a host have deadlines of their own, which may add up to more than that of a collective.
    world.communicator().set_timeout(std::numeric_limits<double>::infinity());
    append(findings,
           gather_findings(world, speaks ? examine_host(config, options, world.local_size(), world.is_first())
                                         : std::vector<Finding>{}));
    return findings;
  }
  const std::string library = mpi_library();
  findings = {check_user(), check_mpirun(library)};
  if (!library.empty() && findings.back().verdict != Verdict::problem)
    append(findings, check_ranks(options.program, options.deadline_seconds));
  append(findings, check_srun());
  append(findings, examine_host(config, options, available_cores(), true));
  return findings;
}

}  // namespace lockstep
