// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/explain.h"

#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/job/overrides.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"

using namespace lockstep;

namespace {

struct Options {
  std::string a, b;
  bool json = false;
  ExplainOptions how;
};

int explain_runs(Options options, const SettingLayer& overrides) {
  options.how.overrides = overrides;
  const RecordedRun a = read_run(options.a), b = read_run(options.b);
  const Explanation explanation = explain(a, b, World::alone(), options.how);
  write_output(options.json ? to_json(explanation) : describe(explanation));
  return explanation.is_equal() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Explains why two trainings have different bits: names the key, the data, the scope or the build that "
      "differs, else computes steps again and names the step, the tensor and the run that is wrong. Exit "
      "code "
      "0: they are equal; 1: they differ. section.key=value sets a key that does not fix the bits");
  Options options;
  line.add("A", options.a, "the folder of a run", {.is_required = true, .is_path = true});
  line.add("B", options.b, "the folder of another run", {.is_required = true, .is_path = true});
  line.add_flag("--json", options.json, "print the explanation as JSON");
  line.add("--programs-a", options.how.programs_a,
           "the folder with the programs of A's build, if they are not where they trained",
           {.type = "FOLDER", .is_path = true});
  line.add("--programs-b", options.how.programs_b, "the folder with the programs of B's build",
           {.type = "FOLDER", .is_path = true});
  return run_alone([&] {
    const Overrides overrides = take_overrides(argc, argv);
    if (const std::string text = overrides.parse_by(line); !text.empty()) {
      write_output(text);
      return 0;
    }
    return explain_runs(options, overrides.settings);
  });
}
