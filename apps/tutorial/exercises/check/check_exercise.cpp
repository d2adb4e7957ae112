// SPDX-License-Identifier: Apache-2.0
// Runs an exercise of the tutorial and its solution, and compares the bits of their losses step by step. If
// the bits match a known mistake, it names the mistake.
// See docs/tutorial/check_exercise.md.
#include <filesystem>
#include <iostream>
#include <string>

#include "apps/tutorial/exercises/check/verdict.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/program/command_line.h"

namespace lockstep {
namespace {

struct Request {
  std::string beginning;  ///< of the names to check; empty means all exercises
  std::string folder;     ///< folder of the learner's programs; empty means next to this program
  double deadline_seconds = 20.0;
  std::string mistake;  ///< the mistake to show instead of checking programs; empty means none
};

/// Returns why a learner's program is older than its source, or an empty text if it is up to date. A failed
/// build leaves the program of the previous build.
std::string reason_to_build(const std::filesystem::path& program, const std::string& name) {
  const std::filesystem::path source = std::filesystem::path(TUTORIAL_EXERCISES) / (name + ".cpp");
  std::error_code absent;
  const auto built = std::filesystem::last_write_time(program, absent);
  if (absent) return "the program is not built yet";
  const auto written = std::filesystem::last_write_time(source, absent);
  return !absent && written > built ? "the source was changed after the program was built" : "";
}

int check_all(const Request& request) {
  const std::filesystem::path here = std::filesystem::canonical("/proc/self/exe").parent_path();
  const std::filesystem::path folder =
      request.folder.empty() ? here / "exercises" : std::filesystem::absolute(request.folder);
  const std::vector<Exercise> exercises = exercises_named(request.beginning);
  size_t solved = 0;
  for (const Exercise& exercise : exercises) {
    const bool is_own = request.folder.empty() && request.mistake.empty();
    const std::string reason = is_own ? reason_to_build(folder / exercise.name, exercise.name) : "";
    if (!reason.empty()) {
      std::cout << concat(exercise.name, ": ", reason, ": cmake --build --preset cpu --target ",
                          exercise.name, "\n");
      continue;
    }
    const std::string solution = here / "solutions" / exercise.name;
    const Verdict verdict = request.mistake.empty()
                                ? check(exercise, folder / exercise.name, solution, request.deadline_seconds)
                                : imagine(exercise, mistake_named(request.mistake), solution);
    std::cout << concat(exercise.name, ": ", verdict.words, "\n") << std::flush;
    solved += verdict.is_solved ? 1 : 0;
  }
  if (exercises.size() > 1 && request.mistake.empty())
    std::cout << concat(solved, " of ", exercises.size(), " exercises are solved\n");
  return solved == exercises.size() || !request.mistake.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  CommandLine line(
      "Compares an exercise with its solution, bit by bit. Exits with 0 if all exercises asked for are "
      "solved, else with 1.");
  Request request;
  line.add("name", request.beginning, "the exercise or the start of its name: 2c, or 2 for a chapter");
  line.add("--exercises", request.folder, "the folder of the programs to check",
           {.type = "FOLDER", .is_path = true});
  line.add("--deadline", request.deadline_seconds, "the longest time of one start of a program, in s",
           {.is_positive = true});
  line.add("--mistake", request.mistake,
           "print the verdict on a program with this mistake: \"epoch not set\"", {.type = "NAME"});
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] { return check_all(request); });
}
