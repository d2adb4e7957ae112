// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/exercises/check/trial_run.h"

#include <bit>
#include <filesystem>
#include <regex>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

/// A new working directory of this process. The destructor removes it and restores the previous one.
class WorkingFolder {
 public:
  WorkingFolder() { std::filesystem::current_path(path_); }
  ~WorkingFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  std::string path_ = make_temporary_folder("exercise");
};

/// Returns the rest of the first line with `mark` after the mark, or an empty text if no line has it.
std::string after(const std::string& mark, const std::string& output) {
  const size_t at = output.find(mark);
  if (at == std::string::npos) return "";
  const size_t begin = at + mark.size();
  return output.substr(begin, output.find('\n', begin) - begin);
}

std::string failure_of(const CommandResult& result, double deadline_seconds) {
  if (result.timed_out)
    return concat("did not end within ", deadline_seconds,
                  " s: a rank may wait for ranks that do not call the same operation");
  if (result.ending.is_success()) return "";
  const std::string error = after("error: ", result.output);
  return concat("ended with ", describe(result.ending), error.empty() ? "" : ": ", error);
}

}  // namespace

std::vector<TraceLine> trace_lines(const std::string& output) {
  static const std::regex with_bits("step ([0-9]{1,18}) (loss|evaluation)_bits ([0-9a-f]{8}) .*");
  std::vector<TraceLine> lines;
  std::istringstream text(output);
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("step ")) continue;
    lines.push_back({.text = line, .point = {}});
    std::smatch match;
    if (!std::regex_match(line, match, with_bits)) continue;
    const auto bits = static_cast<uint32_t>(std::stoul(match[3], nullptr, 16));
    lines.back().point = Point{.step = std::stoll(match[1]),
                               .is_evaluation = match[2] == "evaluation",
                               .loss = std::bit_cast<float>(bits)};
  }
  return lines;
}

TrialRun run_trial(const std::string& program, const Trial& trial, double deadline_seconds) {
  const WorkingFolder folder;
  TrialRun run;
  for (const std::vector<std::string>& arguments : trial.starts) {
    std::vector<std::string> command = {program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const CommandResult result = run_within(deadline_seconds, command);
    run.starts.push_back(trace_lines(result.output));
    run.blank = after("still blank: ", result.output);
    run.failure = failure_of(result, deadline_seconds);
    if (!run.failure.empty()) break;
  }
  return run;
}

}  // namespace lockstep
