// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/job/keys.h"
#include "lockstep/job/overrides.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"
#include "lockstep/replay/bundle.h"
#include "lockstep/replay/describe_step.h"
#include "lockstep/replay/replay_step.h"

using namespace lockstep;

namespace {

struct Options {
  std::string run;
  ReplayOptions replay;
  bool json = false;
  std::string dump, bundle;
};

void describe(CommandLine& line, Options& options) {
  line.add("RUN", options.run, "the folder of a run of train_gpt or train_mlp, or one that --bundle wrote",
           {.is_required = true, .is_path = true});
  line.add("--step", options.replay.step, "the step of the run, from 1", {.least = 1});
  line.add("--replica", options.replay.replica, "the replica to show, from 0; -1: all", {.least = -1});
  line.add("--micro-batch,--micro_batch", options.replay.micro_batch,
           "one micro-batch of the replica, from 0; -1: all", {.least = -1});
  line.add_flag("--from-start", options.replay.from_start,
                "if no snapshot is old enough, compute all steps again from the initial values");
  line.add_flag("--json", options.json, "print all of it as JSON, with the loss of every token");
  line.add("--dump", options.dump,
           "a new safetensors file for the samples, the gradients and all that the operations computed",
           {.type = "FILE", .is_path = true});
  line.add("--bundle", options.bundle,
           "a new folder for one micro-batch with the model's values and all that computes it again: "
           "replay FOLDER. It holds data and model, so mind who gets it",
           {.type = "FOLDER", .is_path = true});
}

/// Writes the file of --dump. A path that cannot be written is an error of the command line.
template <class Replay>
void dump(const Options& options, const Replay& replay) {
  if (options.dump.empty()) return;
  try {
    write_output_to(options.dump, to_safetensors(tensors_of(replay)));
  } catch (const Error& problem) {
    throw UserError(concat("--dump: ", problem.what()));
  }
}

void require_new(const std::string& path) {
  std::error_code ignored;
  require(!std::filesystem::is_regular_file(path, ignored), "--dump ", path,
          " exists already: name a new file");
}

int replay_from_bundle(const Options& options, const SettingLayer& overrides, const World& world) {
  require(options.bundle.empty(), "--bundle ", options.bundle, ": ", options.run,
          " is a bundle itself; copy the folder");
  const ReplayOptions& replay = options.replay;
  require(replay.step == 0 && replay.replica == 0 && replay.micro_batch < 0 && !replay.from_start,
          options.run,
          " is a bundle of one micro-batch of one step: leave out --step, --replica, "
          "--micro-batch and --from-start");
  const BundleReplay bundle = replay_bundle(options.run, overrides, world, !options.dump.empty());
  write_output(options.json ? to_json(bundle) : describe(bundle));
  dump(options, bundle.replica);
  return bundle.is_equal() ? 0 : 1;
}

int replay(Options options, const SettingLayer& overrides) {
  const World world = World::alone();
  require_new(options.dump);
  if (is_bundle(options.run)) return replay_from_bundle(options, overrides, world);
  const RecordedRun run = read_run(options.run, overrides);
  require(options.replay.step > 0, "--step is missing: ", options.run, " has the steps 1 to ",
          run.last_step());
  require_fit(run, options.replay);
  if (!options.bundle.empty()) {
    require(options.replay.replica >= 0, "--bundle packs one micro-batch: name its --replica");
    options.replay.micro_batch = std::max<int64_t>(options.replay.micro_batch, 0);
  }
  options.replay.keeps_tensors = !options.dump.empty();
  const auto tasks = open_tasks(run, overrides, world);
  const StepReplay step = replay_step(run, *tasks, world, options.replay);
  if (!options.bundle.empty()) write_bundle(options.bundle, run, *tasks, step);
  dump(options, step);
  write_output(options.json ? to_json(step, tasks->tokenizer()) : describe(step, tasks->tokenizer()));
  return step.is_equal() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line(
      "Computes a step of a training again on this machine, whatever ranks and sharding it had, and shows "
      "one replica: its samples, the losses of its tokens, its gradients. Exit code 0: the bits are those of "
      "the run; 1: they are not. section.key=value sets a key that does not fix the bits, such as "
      "data.dataset if the data have moved");
  Options options;
  describe(line, options);
  return run_alone([&] {
    const Overrides overrides = take_overrides(argc, argv);
    if (const std::string text = overrides.parse_by(line); !text.empty()) {
      write_output(text);
      return 0;
    }
    return replay(options, overrides.settings);
  });
}
