// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <iostream>
#include <regex>

#include "lockstep/comm/open_mpi.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/doctor/doctor.h"

namespace lockstep {
namespace {

constexpr const char* probe_mark = "lockstep-probe";
constexpr double probe_seconds = 20.0;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Returns the end of a command's output, on one line.
std::string end_of(const std::string& output) {
  constexpr size_t most = 300;
  std::string text = output.size() > most ? "... " + output.substr(output.size() - most) : output;
  text = std::regex_replace(text, std::regex("-{5,}"), "");
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

struct Probe {
  bool succeeded = false;
  bool lacks_slots = false;
  int cores = 0;  ///< usable by rank 0
  std::string failure;
};

/// Starts a probe of this many ranks by a launcher's command line.
Probe start_probe(std::vector<std::string> words, const std::string& program, int ranks,
                  double deadline_seconds) {
  words.insert(words.end(), {program, probe_argument});
  // The probe may run as root: check_user() reports whether mpirun allows that.
  const CommandResult result =
      run_within(deadline_seconds, words, OpenMpiEnvironment().allow_root().variables());
  Probe probe;
  std::smatch match;
  const std::regex answer(concat(probe_mark, " ", ranks, " ranks, ([0-9]+) cores"));
  if (result.succeeded() && std::regex_search(result.output, match, answer)) {
    probe.succeeded = true;
    probe.cores = std::stoi(match[1]);
    return probe;
  }
  probe.lacks_slots = result.output.find("slots") != std::string::npos;
  probe.failure = result.timed_out ? concat("nothing within ", deadline_seconds, " s; ") : "";
  probe.failure += concat("exit code ", result.ending.code(), ": ", end_of(result.output));
  return probe;
}

Probe start_by_mpirun(const std::string& program, int ranks, double deadline_seconds,
                      const std::vector<std::string>& options = {}) {
  std::vector<std::string> words = {"mpirun", "-np", std::to_string(ranks)};
  words.insert(words.end(), options.begin(), options.end());
  return start_probe(words, program, ranks, deadline_seconds);
}

Finding judge_two_ranks(const std::string& program, double deadline_seconds) {
  const std::string name = "two ranks";
  const Probe plain = start_by_mpirun(program, 2, deadline_seconds);
  if (plain.succeeded) return {name, Verdict::ok, "mpirun -np 2 starts them, and they exchange data"};
  if (plain.lacks_slots) {
    const Probe more = start_by_mpirun(program, 2, deadline_seconds, more_ranks_than_cores());
    if (more.succeeded)
      return {name, Verdict::warning,
              "mpirun has fewer than 2 slots here; with oversubscription they start and exchange data",
              concat("for more ranks than cores add ", joined(more_ranks_than_cores(), " "),
                     ", or list slots in a --hostfile")};
  }
  return {name, Verdict::problem, concat("mpirun -np 2: ", plain.failure),
          "try mpirun -np 2 hostname; if ranks have several networks or a firewall between them, select the "
          "right network (--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0)"};
}

}  // namespace

int answer_probe() {
  return run_program([] {
    const World world = World::from_environment();
    world.communicator().set_timeout(probe_seconds);
    const std::vector<std::string> texts = world.communicator().all_gather_text("here");
    if (world.is_first())
      std::cout << concat(probe_mark, " ", texts.size(), " ranks, ", available_cores(), " cores\n")
                << std::flush;
    return 0;
  });
}

Finding check_mpirun(const std::string& library) {
  const std::string name = "mpirun";
  if (library.empty())
    return {name, Verdict::warning, "this build has no MPI, so it runs one rank only",
            "install libopenmpi-dev and configure again with LOCKSTEP_MPI=ON"};
  const std::string path = find_program("mpirun");
  if (path.empty())
    return {name, Verdict::problem, "not found in PATH",
            concat("install openmpi-bin, or add the bin folder of ", first_line(library), " to PATH")};
  const CommandResult result = run_within(probe_seconds, {path, "--version"});
  const std::string said = first_line(result.output);
  if (!result.succeeded())
    return {name, Verdict::problem, concat(path, " --version fails: ", end_of(result.output)),
            "reinstall it"};
  if (MpiVersion::in(result.output) == MpiVersion::in(library))
    return {name, Verdict::ok, concat(path, ", ", said, "; the program's library is the same")};
  return {name, Verdict::problem, concat(path, " is ", said, ", but this program is linked with ", library),
          "put the mpirun of the program's MPI first in PATH, or build again with this one: ranks started by "
          "another MPI do not find each other"};
}

std::vector<Finding> check_ranks(const std::string& program, double deadline_seconds) {
  std::vector<Finding> findings = {judge_two_ranks(program, deadline_seconds)};
  if (findings.front().verdict == Verdict::problem) return findings;
  const Probe single = start_by_mpirun(program, 1, deadline_seconds);
  const std::string name = "one rank";
  if (!single.succeeded)
    findings.push_back(
        {name, Verdict::problem, concat("mpirun -np 1: ", single.failure), "try mpirun -np 1 hostname"});
  else if (single.cores < available_cores())
    findings.push_back(
        {name, Verdict::warning,
         concat("mpirun -np 1 binds it to ", single.cores, " of ", available_cores(), " cores"),
         "start one or two ranks with --bind-to none, so that each has threads on its share of cores"});
  else
    findings.push_back({name, Verdict::ok, concat("mpirun -np 1 lets it use all ", single.cores, " cores")});
  return findings;
}

Finding check_lockrun(const std::string& program, double deadline_seconds) {
  const std::string name = "lockrun";
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  const std::string lockrun = find_program(folder / "lockrun");
  if (lockrun.empty())
    return {name, Verdict::warning, concat("there is no lockrun in ", folder.string()), "install it there"};
  if (find_program(folder / "lockrun_host").empty())
    return {name, Verdict::warning, "starts ranks with mpirun, on one node: this build has no libpmix",
            "install libpmix-dev and build again"};
  const Probe probe = start_probe({lockrun, "--via", "pmix", "--max-restarts", "0", "--nproc", "2", "--"},
                                  program, 2, deadline_seconds);
  if (probe.succeeded) return {name, Verdict::ok, "starts two ranks without mpirun, and they exchange data"};
  return {name, Verdict::problem, concat("lockrun --nproc 2: ", probe.failure),
          "start lockrun --via mpirun; this build's libpmix and that of its MPI may not understand each "
          "other"};
}

std::vector<Finding> check_srun() {
  const CommandResult settings = run_within(probe_seconds, {"scontrol", "show", "config"});
  std::smatch match;
  if (!settings.succeeded() ||
      !std::regex_search(settings.output, match, std::regex("MpiDefault *= *([^\\s]+)")))
    return {};
  const std::string name = "srun";
  const auto chosen = environment_if_set("SLURM_MPI_TYPE");
  const std::string type = chosen.value_or(match[1].str());
  const std::string from = chosen ? "SLURM_MPI_TYPE" : "the cluster's MpiDefault";
  if (run_within(probe_seconds, {"srun", "--mpi=list"}).output.find("pmix") == std::string::npos)
    return {{name, Verdict::warning, "srun --mpi=list has no pmix: its tasks cannot find each other",
             "start ranks with mpirun inside the allocation"}};
  if (type.starts_with("pmix"))
    return {{name, Verdict::ok, concat("starts ranks with ", type, " (", from, ")")}};
  return {{name, Verdict::warning,
           concat("starts tasks that cannot find each other: ", from, " is ", type, ", not pmix"),
           "export SLURM_MPI_TYPE=pmix (scripts/env.sh does), or use srun --mpi=pmix"}};
}

}  // namespace lockstep
