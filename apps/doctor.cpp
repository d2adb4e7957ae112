// SPDX-License-Identifier: Apache-2.0
#include "train/doctor/doctor.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "core/error.h"
#include "train/doctor/mpi_checks.h"

using namespace lockstep;

namespace {

constexpr const char* usage =
    "usage: doctor [--config FILE] [section.key=value ...] [--listen HOST:PORT] [--shm FOLDER] [--deadline "
    "S] [--json]\n"
    "\n"
    "Looks for what would go wrong with a run of this configuration, and says what to do about it: MPI, "
    "GPUs, NCCL,\n"
    "ports, binding, disks, shared memory, buckets, clocks. Start it by hand on a machine, and as a run "
    "would be\n"
    "started (mpirun, srun) to see its ranks and hosts. The exit code is 1 if there is a problem.\n"
    "\n"
    "  --listen HOST:PORT  where supervisors will meet: tries to listen and to connect there\n"
    "  --shm FOLDER        where shared memory is (/dev/shm)\n"
    "  --deadline SECONDS  for anything that ranks do together (60)\n"
    "  --json              a report for programs\n";

/// Takes `--name VALUE` or `--name=VALUE` out of the arguments; `fallback` if it is not there.
std::string take_option(Arguments& arguments, const std::string& name, const std::string& fallback) {
  std::vector<std::string>& words = arguments.other;
  const auto at = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
    return word == name || word.starts_with(name + "=");
  });
  if (at == words.end()) return fallback;
  const bool is_joined = *at != name;
  require(is_joined || at + 1 != words.end(), "command line: ", name, " lacks its value");
  const std::string value = is_joined ? at->substr(name.size() + 1) : *(at + 1);
  words.erase(at, at + (is_joined ? 1 : 2));
  return value;
}

bool take_flag(Arguments& arguments, const std::string& name) {
  return std::erase(arguments.other, name) > 0;
}

double seconds_of(const std::string& text) {
  size_t end = 0;
  double value = 0.0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  require(end == text.size() && value > 0.0, "command line: --deadline = '", text,
          "' is no number of seconds above 0");
  return value;
}

/// What a training program would refuse is one finding more; the rest is then looked at for a run by default.
Config load_or_report(const Arguments& arguments, const Config& defaults, std::vector<Finding>& findings) {
  try {
    return load_config(arguments, defaults);
  } catch (const UserError& mistake) {
    if (!arguments.other.empty()) throw;
    findings.push_back({"configuration", Verdict::problem, mistake.what(),
                        "repair it; what follows was looked at for a run by default"});
    Arguments plain;
    plain.program = arguments.program;
    return load_config(plain, defaults);
  }
}

int examine_and_report(Arguments arguments) {
  const bool is_for_programs = take_flag(arguments, "--json");
  DoctorOptions options{.program = std::filesystem::read_symlink("/proc/self/exe").string()};
  options.listen = take_option(arguments, "--listen", "");
  options.shared_memory = take_option(arguments, "--shm", options.shared_memory);
  options.deadline_seconds = seconds_of(take_option(arguments, "--deadline", "60"));
  Config defaults;
  defaults.train.steps = 1;  // how long the run takes does not matter here
  std::vector<Finding> findings;
  const Config config = load_or_report(arguments, defaults, findings);
  const World world = World::from_environment();
  for (Finding& finding : examine(config, world, options)) findings.push_back(std::move(finding));
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
    if (!arguments.help) return examine_and_report(arguments);
    std::cout << usage;
    return 0;
  });
}
