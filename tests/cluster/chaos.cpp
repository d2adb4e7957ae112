// SPDX-License-Identifier: Apache-2.0
// Kills, stops and resizes runs at random moments. Compares their results with those of an undisturbed run.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"
#include "support/run_result.h"
#include "support/temporary_directory.h"
#include "tests/cluster/chaos_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Options {
  int runs = 50;
  int resizes = 10;
  uint64_t seed = 7;
  int64_t steps = 300;
  std::string report = "docs/chaos.md";
  std::string folder;
  bool keep = false;
};

/// Arguments of a tiny GPT that often evaluates and writes snapshots. lockrun notices a stopped rank after
/// dist.timeout_s.
std::vector<std::string> training_arguments(int64_t steps) {
  return {"data.dataset=sample",    "data.block_size=16",    "data.train_split=0.98",
          "model.n_layer=1",        "model.n_head=2",        "model.n_embd=16",
          "model.dropout=0.1",      "train.batch_size=2",    "train.warmup_steps=5",
          "train.eval_every=25",    "train.sample_every=50", "dist.replicas=4",
          "dist.timeout_s=5",       "train.threads=1",       "log.every_steps=1000",
          "snapshot.every_steps=5", "train.device=cpu",      concat("train.steps=", steps)};
}

/// The results that must be equal in two runs.
struct Outcome {
  RunResult result;
  std::string best_model;  ///< the bytes of the model file
};

Outcome outcome_of(const std::string& folder) {
  return {read_result(folder + "/run"), read_text(folder + "/snapshots/best/model.safetensors")};
}

/// Returns how a run differs from the undisturbed one. It is empty if they are equal.
std::string difference(const Outcome& undisturbed, const Outcome& struck) {
  const RunResult &reference = undisturbed.result, &result = struck.result;
  if (result.loss_bits.size() != reference.loss_bits.size())
    return concat(result.loss_bits.size(), " steps instead of ", reference.loss_bits.size());
  for (size_t step = 0; step < reference.loss_bits.size(); ++step)
    if (result.loss_bits[step] != reference.loss_bits[step])
      return concat("other loss bits from step ", step + 1, " on");
  if (result.parameters_hash != reference.parameters_hash) return "other parameters";
  if (result.validation_bits != reference.validation_bits) return "other evaluations";
  return struck.best_model == undisturbed.best_model ? "" : "another best snapshot";
}

/// The result of one run, as a row of the report.
struct Row {
  ChaosPlan plan;
  ChaosResult result;
  std::string verdict;  ///< "equal", "not struck", or what is wrong

  bool is_good() const { return verdict == "equal"; }
  bool counts() const { return verdict != "not struck"; }

  std::string text(int number) const {
    std::string blows, restarts, resumes;
    for (size_t i = 0; i < result.strikes.size(); ++i) {
      const Strike& blow = plan.strikes[i];
      const StrikeResult& hit = result.strikes[i];
      const std::string separator = i ? "; " : "";
      blows +=
          concat(separator, "SIG", ::sigabbrev_np(blow.signal), " at ", hit.step,
                 hit.hit_moment && blow.moment != Moment::any ? concat(" (", name(blow.moment), ")") : "");
      if (blow.ranks_after > 0)
        blows += concat(", then ", blow.ranks_after, blow.ranks_after == 1 ? " rank" : " ranks");
      restarts += separator + (hit.happened ? fixed_text(hit.restart_seconds, 1) : "–");
      resumes += separator + (hit.happened ? fixed_text(hit.resume_seconds, 1) : "–");
    }
    return concat("| ", number, " | ", plan.seed, " | ", plan.ranks, " | ", blows, " | ", restarts, " | ",
                  resumes, " | ", fixed_text(result.seconds, 1), " | ", verdict, " |\n");
  }
};

/// Returns a table with the slowest restart after each signal.
std::string slowest_restarts(const std::vector<Row>& rows) {
  struct Slowest {
    int strikes = 0;
    std::array<int, 5> at_moment{};
    double restart_seconds = 0.0, resume_seconds = 0.0;
  };
  std::map<std::string, Slowest> of_signal;
  for (const Row& row : rows)
    for (size_t i = 0; i < row.result.strikes.size(); ++i) {
      const StrikeResult& hit = row.result.strikes[i];
      if (!hit.happened) continue;
      Slowest& slowest = of_signal[concat("SIG", ::sigabbrev_np(row.plan.strikes[i].signal))];
      ++slowest.strikes;
      slowest.at_moment.at(static_cast<size_t>(row.plan.strikes[i].moment)) += hit.hit_moment ? 1 : 0;
      slowest.restart_seconds = std::max(slowest.restart_seconds, hit.restart_seconds);
      slowest.resume_seconds = std::max(slowest.resume_seconds, hit.resume_seconds);
    }
  std::string text =
      "| signal | strikes | in a snapshot | in a validation | in a sample | in the start-up | "
      "slowest restart [s] | slowest next step [s] |\n|---|---|---|---|---|---|---|---|\n";
  for (const auto& [signal, slowest] : of_signal)
    text +=
        concat("| ", signal, " | ", slowest.strikes, " | ", slowest.at_moment[1], " | ", slowest.at_moment[2],
               " | ", slowest.at_moment[3], " | ", slowest.at_moment[4], " | ",
               fixed_text(slowest.restart_seconds, 1), " | ", fixed_text(slowest.resume_seconds, 1), " |\n");
  return text;
}

constexpr const char* definitions =
    "- **A strike** is a signal to a random rank at a random moment. Half of the strikes wait "
    "for a snapshot, a validation, a sample or\n"
    "  the start-up.\n"
    "- **In the last runs** the signal goes to `lockrun` itself. It must leave no process "
    "behind. It is then started again with another\n"
    "  number of ranks.\n"
    "- **A run is equal** if it completes, leaves no process behind, and has the bits of an "
    "undisturbed run on two ranks. The losses of\n"
    "  all steps, the evaluations, the parameters and the best snapshot are compared.\n"
    "- **A run is not struck** if it ended before one of its signals. It does not count.\n"
    "\n"
    "| run | seed | ranks | signal at step | restart [s] | next step [s] | run [s] | result |\n"
    "|---|---|---|---|---|---|---|---|\n";

/// Returns the page docs/chaos.md.
std::string report(const Options& options, const std::vector<Row>& rows) {
  const auto good = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.is_good(); });
  const auto counted = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.counts(); });
  std::string text = concat("# Chaos\n\n**", good, " of ", counted,
                            " runs are equal.** At random moments a signal killed, stopped or ended a random "
                            "rank or `lockrun` itself.");
  if (good == counted) text += " All runs ended\nwith the bits of an undisturbed run.";
  text += concat(
      "\n\n", slowest_restarts(rows),
      "\nThe four columns in the middle count the strikes that came at that moment. *Restart* is the "
      "time from the signal until all ranks\nare new processes. *Next step* is the time until the next "
      "step is completed. A stopped rank (SIGSTOP) goes unnoticed for\n`dist.timeout_s`, which is 5 s "
      "here.\n\n`scripts/chaos.sh --runs ",
      options.runs, " --resizes ", options.resizes, " --seed ", options.seed,
      "` wrote this page on a machine with ", ::sysconf(_SC_NPROCESSORS_ONLN),
      " cores.\n\n- **A run** trains a tiny GPT for ", options.steps,
      " steps under `lockrun`. It writes a snapshot every 5 steps, validates every 25 and generates\n  a "
      "sample every 50.\n",
      definitions);
  for (size_t i = 0; i < rows.size(); ++i) text += rows[i].text(static_cast<int>(i) + 1);
  return text;
}

ChaosSetup setup_for(const Options& options, const std::string& name) {
  const std::string programs = LOCKSTEP_PROGRAM_DIR;
  return {.lockrun = programs + "/lockrun",
          .program = fs::canonical(programs + "/train_gpt"),
          .arguments = training_arguments(options.steps),
          .folder = options.folder + "/" + name};
}

Outcome run_undisturbed(const Options& options) {
  const ChaosSetup setup = setup_for(options, "undisturbed");
  const ChaosResult result = run_with_chaos(setup, {.seed = 0, .ranks = 2, .strikes = {}});
  expect(result.problem.empty(), "the undisturbed run: ", result.problem, "\n",
         read_text(setup.folder + "/said"));
  return outcome_of(setup.folder);
}

Row run_one(const Options& options, uint64_t seed, bool is_resize, const Outcome& reference) {
  const ChaosSetup setup = setup_for(options, concat("run-", seed));
  Row row{.plan = make_plan(seed, is_resize, options.steps), .result = {}, .verdict = {}};
  row.result = run_with_chaos(setup, row.plan);
  row.verdict = row.result.problem;
  if (row.verdict.empty()) row.verdict = difference(reference, outcome_of(setup.folder));
  if (row.verdict.empty()) row.verdict = row.result.was_struck() ? "equal" : "not struck";
  const bool is_wrong = !row.is_good() && row.counts();
  if (is_wrong) std::cout << read_text(setup.folder + "/said");
  if (!is_wrong && !options.keep) fs::remove_all(setup.folder);
  return row;
}

int run_all(const Options& options) {
  const Outcome reference = run_undisturbed(options);
  std::cout << concat("undisturbed: ", reference.result.loss_bits.size(), " steps, parameters ",
                      reference.result.parameters_hash, "\n")
            << std::flush;
  std::vector<Row> rows;
  int failures = 0;
  for (const bool is_resize : {false, true}) {
    int wanted = is_resize ? options.resizes : options.runs;
    // A run that ended before its strike proves nothing. Another run replaces it, up to a limit.
    for (int tries = 2 * wanted + 4; wanted > 0 && tries > 0; --tries) {
      const Row& row =
          rows.emplace_back(run_one(options, options.seed * 1000 + rows.size(), is_resize, reference));
      std::cout << row.text(static_cast<int>(rows.size())) << std::flush;
      wanted -= row.counts() ? 1 : 0;
      failures += row.counts() && !row.is_good() ? 1 : 0;
      if (!options.report.empty()) write_output_to(options.report, report(options, rows));
    }
    failures += wanted;
  }
  std::cout << concat(failures == 0 ? "all runs are equal" : concat(failures, " runs failed"), "\n");
  return failures == 0 ? 0 : 1;
}

int chaos(int argc, char** argv) {
  Options options;
  CommandLine line(
      "Kills, stops and resizes runs at random moments, and compares them with an undisturbed one.");
  line.add("--runs", options.runs, "runs that are struck", {.least = 0});
  line.add("--resizes", options.resizes, "runs that come back with another number of ranks", {.least = 0});
  line.add("--seed", options.seed, "of the moments, signals and ranks");
  line.add("--steps", options.steps, "of each run", {.is_positive = true});
  line.add("--report", options.report, "a Markdown file to write", {.is_path = true});
  line.add("--folder", options.folder, "for the runs; those that fail stay there (default: a temporary one)",
           {.is_path = true});
  line.add_flag("--keep", options.keep, "keep all runs");
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  const TemporaryDirectory temporary;
  if (options.folder.empty()) options.folder = temporary.path();
  fs::create_directories(options.folder);
  options.folder = fs::canonical(options.folder);
  return run_all(options);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::begin_program();
  try {
    return lockstep::end_program(lockstep::chaos(argc, argv));
  } catch (const std::exception& problem) {
    std::cerr << "error: " << problem.what() << "\n";
    return 1;
  }
}
