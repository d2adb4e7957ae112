// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/verify.h"

#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/job/overrides.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"

using namespace lockstep;

namespace {

struct Options {
  std::string run;
  Interval interval;
};

int verify(const Options& options, const SettingLayer& overrides) {
  const RecordedRun run = read_run(options.run, overrides);
  const Interval& interval = options.interval;
  run.require_step(interval.first);
  if (interval.last != 0) run.require_step(interval.last);
  const World world = World::alone();
  const Verification record = verify_record(run);
  // A wrong line of metrics.jsonl breaks the chain at the next snapshot. Computing finds the line.
  const bool is_about_steps = record.holds() || record.failed_step > 0;
  Verification result = record;
  if (is_about_steps) {
    result = verify_steps(run, *open_tasks(run, overrides, world), world, interval);
    result.link = record.link;
    if (result.holds() && !record.holds()) result = record;
  }
  write_output(describe(run, result));
  return result.holds() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Computes steps of a training again on this machine and holds them against the record of the run: the "
      "bits of each loss, the snapshots, the chain of hashes. Exit code 0: all hold; 1: one does not, and "
      "the first is named. section.key=value sets a key that does not fix the bits, such as data.dataset");
  Options options;
  line.add("RUN", options.run, "the folder of a run of train_gpt or train_mlp",
           {.is_required = true, .is_path = true});
  line.add("--from", options.interval.first, "the first step to hold against the record", {.least = 1});
  line.add("--to", options.interval.last, "the last one; 0: the last of the run", {.least = 0});
  return run_alone([&] {
    const Overrides overrides = take_overrides(argc, argv);
    if (const std::string text = overrides.parse_by(line); !text.empty()) {
      write_output(text);
      return 0;
    }
    return verify(options, overrides.settings);
  });
}
