// SPDX-License-Identifier: Apache-2.0
#include "lockstep/doctor/doctor.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "lockstep/core/error.h"
#include "lockstep/core/version.h"
#include "lockstep/job/load_job.h"
#include "lockstep/program/command_line.h"
#include "lockstep/train/trainer.h"

using namespace lockstep;

namespace {

constexpr const char* usage =
    "usage: doctor [--config FILE] [section.key=value ...] [--listen HOST:PORT] [--shm FOLDER] "
    "[--deadline SECONDS] [--json]\n"
    "\n"
    "Finds the problems that a run of this configuration would have, and prints how to fix them. It examines "
    "MPI, GPUs, NCCL, ports, binding, disks, shared memory, buckets and clocks. Start it by hand to examine "
    "one machine. Start it as you start a run (mpirun, srun) to examine its ranks and hosts. The exit code "
    "is "
    "1 if there is a problem.\n"
    "\n"
    "  --listen HOST:PORT  rendezvous of the supervisors: tries to listen and to connect there\n"
    "  --shm FOLDER        folder of shared memory (default /dev/shm)\n"
    "  --deadline SECONDS  limit for each operation of the ranks together (default 60)\n"
    "  --json              print the findings as JSON\n";

/// Removes the options that only this program has from the arguments.
DoctorOptions take_options(Arguments& arguments, bool& is_for_programs) {
  DoctorOptions options{.program = std::filesystem::read_symlink("/proc/self/exe").string()};
  CommandLine line;
  line.add("--listen", options.listen);
  line.add("--shm", options.shared_memory, "", {.is_path = true});
  line.add("--deadline", options.deadline_seconds);
  line.add_flag("--json", is_for_programs);
  line.take_from(arguments.other, arguments.program);
  require(options.deadline_seconds > 0.0, "command line: --deadline must be a number of seconds above 0");
  return options;
}

/// Loads the configuration. If a training program would refuse it, adds a finding and returns the defaults.
Job load_or_report(const Arguments& arguments, const SettingLayer& defaults, std::vector<Finding>& findings) {
  try {
    return job_of(load_settings(arguments, defaults));
  } catch (const UserError& mistake) {
    if (!arguments.other.empty()) throw;
    findings.push_back({"configuration", Verdict::problem, mistake.what(),
                        "fix it; the other findings are for a run with the default configuration"});
    Arguments plain;
    plain.program = arguments.program;
    return job_of(load_settings(plain, defaults));
  }
}

int examine_and_report(Arguments arguments) {
  bool is_for_programs = false;
  const DoctorOptions options = take_options(arguments, is_for_programs);
  const SettingLayer defaults = {{"train.steps", "1"}};  // how long the run takes does not matter here
  std::vector<Finding> findings;
  const Job job = load_or_report(arguments, defaults, findings);
  if (arguments.print_config) return print_once(to_ini(job));
  const World world = World::from_environment();
  for (Finding& finding : examine(job, world, options)) findings.push_back(std::move(finding));
  if (!world.is_first()) return 0;
  std::cout << (is_for_programs ? to_json(findings) + "\n" : to_text(findings)) << std::flush;
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::problem; })
             ? 1
             : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{probe_argument}) return answer_probe();
  return run_program([&] {
    const Arguments arguments = split_arguments(argc, argv);
    if (arguments.help) return print_help(usage);
    if (arguments.version) return print_once(version_text());
    require(!arguments.plan, "command line: only train_gpt has --plan");
    return examine_and_report(arguments);
  });
}
