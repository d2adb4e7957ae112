// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/local_communicator.h"
#include "comm/mpi_communicator.h"
#include "core/error.h"
#include "core/host.h"
#include "core/text.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

void append(std::vector<Finding>& findings, const std::vector<Finding>& more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

/// Runs the checks that one process can make of its host.
std::vector<Finding> examine_host(const Job& job, const DoctorOptions& options, int ranks,
                                  bool writes_snapshots) {
  std::vector<Finding> findings = check_gpus(job);
  append(findings, {check_host_name(host_name()), check_port(options.listen), check_ipv6(),
                    check_binding(job, Cores::of_this_process(), ranks), check_clock()});
  append(findings, check_storage(job, options.shared_memory, ranks, writes_snapshots));
  return findings;
}

}  // namespace

// An unknown name is read as the first verdict.
NLOHMANN_JSON_SERIALIZE_ENUM(Verdict, {{Verdict::problem, "problem"},
                                       {Verdict::warning, "warning"},
                                       {Verdict::ok, "ok"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, name, verdict, found, advice)

std::vector<Finding> examine(const Job& job, const World& world, const DoctorOptions& options) {
  world.communicator().set_timeout(options.deadline_seconds);
  std::vector<Finding> findings;
  // A launcher may have started just one rank, so the size of the world does not show a launch.
  const bool is_launched = dynamic_cast<LocalCommunicator*>(&world.communicator()) == nullptr;
  if (is_launched) {
    findings = check_together(world);
    const bool speaks = is_first_of_host(world);
    // The checks of a host have deadlines of their own. Together they may exceed that of a collective.
    const NoTimeout no_timeout(world.communicator());
    append(findings,
           gather_findings(world, speaks ? examine_host(job, options, world.local_size(), world.is_first())
                                         : std::vector<Finding>{}));
    return findings;
  }
  const std::string library = mpi_library();
  findings = {check_user(), check_mpirun(library)};
  if (!library.empty() && findings.back().verdict != Verdict::problem)
    append(findings, check_ranks(options.program, options.deadline_seconds));
  if (!library.empty()) findings.push_back(check_lockrun(options.program, options.deadline_seconds));
  append(findings, check_srun());
  append(findings, examine_host(job, options, available_cores(), true));
  return findings;
}

std::string to_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text;
  for (const Finding& finding : findings) {
    const auto verdict = nlohmann::json(finding.verdict).get<std::string>();
    text += concat(left_aligned(verdict, 9), left_aligned(finding.name, width), "  ", finding.found, "\n");
    if (!finding.advice.empty()) text += concat(std::string(9 + width, ' '), "  -> ", finding.advice, "\n");
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  const auto count = [&](Verdict verdict) {
    return std::ranges::count(findings, verdict, &Finding::verdict);
  };
  const nlohmann::json report = {
      {"findings", findings}, {"problems", count(Verdict::problem)}, {"warnings", count(Verdict::warning)}};
  // Texts that a check quotes (a program's output, say) need not be UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<Finding> findings_from_json(const std::string& text) {
  return nlohmann::json::parse(text).at("findings").get<std::vector<Finding>>();
}

}  // namespace lockstep
