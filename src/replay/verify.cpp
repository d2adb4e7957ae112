// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/verify.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/job/keys.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/replay/replay_step.h"
#include "lockstep/replay/replayed_run.h"
#include "lockstep/replay/tensor_difference.h"
#include "lockstep/snapshot/found_run.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/store/object_store.h"
#include "lockstep/train/run_log.h"

namespace lockstep {
namespace {

/// A snapshot of a run, by its name.
struct ListedSnapshot {
  std::string path;
  int64_t step = 0;          ///< as its name or its state tells; 0: neither does
  std::string problem = {};  ///< why its state cannot be read; only if the name does not tell the step
};

/// Returns whether a folder has the state of a snapshot. That of a bucket cannot vanish meanwhile.
bool exists(const std::string& path) {
  std::error_code ignored;
  return !local_path(path) || std::filesystem::exists(path + "/" + state_file, ignored);
}

/// Returns the snapshot of this name. The name of the best one in a folder does not tell its step.
ListedSnapshot listed(const std::string& path, const std::string& name) {
  const size_t dash = name.rfind('-');
  if (const auto step = dash == std::string::npos ? std::nullopt : number_in<int64_t>(name.substr(dash + 1)))
    return {path, *step};
  try {
    return {path, find_snapshot(path).state().step};
  } catch (const UserError& problem) {
    return {path, 0, problem.what()};
  }
}

/// Lists all snapshots in the order of their steps, also damaged ones.
std::vector<ListedSnapshot> list_snapshots(const RecordedRun& run) {
  std::vector<ListedSnapshot> all;
  if (run.snapshots.empty()) return all;
  std::vector<std::string> names = SnapshotStore(run.snapshots, 1).names();
  // Programs that use the model follow a link, which is no snapshot of the store.
  for (const char* best : {"best", "best.old"})
    if (std::ranges::count(names, best) == 0 && exists(concat(run.snapshots, "/", best)))
      names.emplace_back(best);
  for (const std::string& name : names) all.push_back(listed(concat(run.snapshots, "/", name), name));
  std::ranges::stable_sort(all, {}, &ListedSnapshot::step);
  return all;
}

/// Returns the chain of the record up to a step, with the origins of a snapshot. `lacks` becomes the first
/// step without a line.
RunChain chain_of_record(const RecordedRun& run, const Snapshot& snapshot, int64_t& lacks) {
  RunChain chain = RunChain::begin(run.semantic_lines, run.data_lines);
  size_t origin = 0;
  const std::vector<RunOrigin>& origins = snapshot.chain.origins;
  for (int64_t step = 0; step <= snapshot.step; ++step) {
    const RecordedStep* const recorded = run.step(step);
    if (step > 0 && recorded == nullptr) {
      lacks = step;
      break;
    }
    if (step > 0) chain.add(step, recorded->loss_bits);
    for (; origin < origins.size() && origins[origin].step == step; ++origin) chain.enter(origins[origin]);
  }
  return chain;
}

/// Returns a problem of the texts of a snapshot, or an empty text.
std::string problem_of_texts(const RecordedRun& run, const Snapshot& snapshot, const std::string& name) {
  const Settings there = settings_of_earlier_run(job_keys(), snapshot.configuration, name);
  if (const auto keys = differences(there, run.settings); !keys.empty())
    return concat("config.ini differs from the settings in ", name, ": ", joined(keys, "; "));
  if (!run.data_lines.empty() && hash_lines(snapshot.artifacts) != run.data_lines)
    return concat("data.hash differs from the data in ", name);
  return "";
}

/// Returns a problem of the files of a snapshot besides the elements of its tensors, or an empty text.
std::string problem_of_files(const ReplayedRun& replayed, const StoredSnapshot& snapshot) {
  std::vector<std::string> names = snapshot.files();
  for (const SnapshotFile& file : files_of(replayed.tensors(), replayed.task().layout())) {
    if (std::erase(names, file.key) == 0) return file.key + " is missing";
    const bool is_text = file.tensors.empty();
    if (file.header != (is_text ? snapshot.read_text(file.key) : snapshot.file(file.key).header))
      return concat(file.key, " has ", is_text ? "another text than" : "other tensors than",
                    " this program writes");
  }
  return names.empty() ? "" : names.front() + " is no file of this model";
}

/// Holds computed steps against the record.
class Verifier {
 public:
  Verifier(const RecordedRun& run, const RunTasks& tasks, const World& world, Verification& result)
      : run_(run), tasks_(tasks), world_(world), result_(result), replayed_(run, tasks, world) {}

  void operator()() {
    replayed_.load(result_.first - 1);
    result_.began_at = replayed_.steps_done();
    replayed_.go_to(result_.first - 1);
    const std::vector<ListedSnapshot> snapshots = list_snapshots(run_);
    while (result_.holds() && replayed_.steps_done() < result_.last) {
      check_step(replayed_.next());
      for (const ListedSnapshot& snapshot : snapshots)
        if (result_.holds() && snapshot.step == replayed_.steps_done()) check_snapshot(snapshot);
    }
    check_end();
    const bool is_whole = result_.first == 1 && result_.last == run_.last_step();
    for (const ListedSnapshot& one : snapshots)
      if (is_whole && (one.step < 1 || one.step > result_.last) && exists(one.path))
        fail(concat(one.path, one.problem.empty() ? concat(" is of step ", one.step) : ": " + one.problem,
                    ", which is none of the steps of metrics.jsonl"));
  }

 private:
  void fail(const std::string& problem) {
    if (!result_.holds()) return;
    result_.failed_step = replayed_.steps_done();
    result_.problem =
        problem + scope_hint(run_.start_of(result_.failed_step), scope_of_bits(tasks_.job(), world_));
  }

  void check_step(const ReplayedStep& step) {
    const RecordedStep* const recorded = run_.step(step.step);
    if (recorded == nullptr) return fail("metrics.jsonl has no line of the step");
    if (step.step == 1 && run_.odd_line_after == 0)
      return fail("the line before it in metrics.jsonl is no step");
    const StepResult& computed = step.result;
    if (recorded->loss_bits != step.loss_bits())
      return fail(concat("the loss is ", computed.loss, " (", step.loss_bits(), "), but metrics.jsonl has ",
                         recorded->loss, " (", recorded->loss_bits, ")"));
    // The line has the shortest digits that name the fp32 number.
    if (!same_number(static_cast<float>(recorded->loss), computed.loss))
      return fail(concat("the loss is ", computed.loss, ", but metrics.jsonl has ", recorded->loss));
    if (!same_number(recorded->gradient_norm, computed.gradient_norm))
      return fail(concat("the gradient norm is ", shortest_text(computed.gradient_norm),
                         ", but metrics.jsonl has ", shortest_text(recorded->gradient_norm)));
    if (!same_number(recorded->learning_rate, step.learning_rate))
      return fail(concat("the learning rate is ", shortest_text(step.learning_rate),
                         ", but metrics.jsonl has ", shortest_text(recorded->learning_rate)));
    if (recorded->validation_loss) check_validation(*recorded->validation_loss, recorded->validation_bits);
    if (run_.odd_line_after == step.step)
      fail("the line after it in metrics.jsonl is neither the next step nor the end of a run");
  }

  void check_validation(double recorded, const std::string& recorded_bits) {
    const double computed = replayed_.validate();
    const std::string bits = RunChain::bits_text(static_cast<float>(computed));
    ++result_.validations;
    validation_losses_.push_back(computed);
    if (bits != recorded_bits || !same_number(computed, recorded))
      fail(concat("the validation loss is ", computed, " (", bits, "), but metrics.jsonl has ", recorded,
                  " (", recorded_bits, ")"));
  }

  void check_snapshot(const ListedSnapshot& found) {
    try {
      const StoredSnapshot snapshot = find_snapshot(found.path);
      if (found.path.ends_with("best") && snapshot.state().step > replayed_.steps_done()) return;
      if (snapshot.state().step != replayed_.steps_done())
        return fail(concat(snapshot.name(), " says that it is of step ", snapshot.state().step));
      if (const std::string problem = problem_of_state(snapshot.state()); !problem.empty())
        return fail(concat(problem, " in ", snapshot.name()));
      if (const std::string problem = problem_of_files(replayed_, snapshot); !problem.empty())
        return fail(concat(snapshot.name(), ": ", problem));
      ReplayedRun stored(run_, tasks_, world_);
      stored.load(snapshot);
      ++result_.snapshots;
      if (const auto difference = first_difference(replayed_.tensors(), stored.tensors()))
        fail(concat("the snapshot differs: ",
                    describe(*difference, "the steps computed again", snapshot.name())));
    } catch (const UserError& problem) {
      // A run that goes on deletes its older snapshots.
      if (exists(found.path) || !run_.parameters_hash.empty()) fail(problem.what());
    }
  }

  /// Returns a problem of the numbers of a snapshot, or an empty text.
  std::string problem_of_state(const Snapshot& state) const {
    if (state.optimizer_steps != replayed_.updates())
      return concat("the optimizer made ", counted(replayed_.updates(), "update"), ", and ",
                    state.optimizer_steps);
    const auto& best = state.validations.best_loss;
    if (best && result_.first == 1 && std::ranges::count(validation_losses_, *best) == 0)
      return concat("no validation loss is ", *best, ", the best one");
    if (hash_lines(state.artifacts) != hash_lines(replayed_.task().facts().artifacts))
      return "the data are others than";
    if (state.grad_scale != replayed_.grad_scale()) return "the loss scale is another than";
    const std::vector<RunOrigin>& origins = state.chain.origins;
    if (!origins.empty() && origins.back().scope != state.scope) return "the scope is not that of the chain";
    return "";
  }

  void check_end() {
    if (!result_.holds() || result_.last < run_.last_step() || run_.parameters_hash.empty()) return;
    const std::string hash = hash_text(replayed_.hash());
    if (hash != run_.parameters_hash)
      fail(concat("the parameters have the hash ", hash, ", but the last line of metrics.jsonl has ",
                  run_.parameters_hash));
  }

  const RecordedRun& run_;
  const RunTasks& tasks_;
  const World& world_;
  Verification& result_;
  ReplayedRun replayed_;
  std::vector<double> validation_losses_ = {};
};

}  // namespace

Verification verify_record(const RecordedRun& run) {
  Verification result;
  const auto fail = [&result](int64_t step, const std::string& problem) {
    if (!result.holds()) return;
    result.failed_step = step;
    result.problem = problem;
  };
  for (const auto& [path, step, unreadable] : list_snapshots(run)) {
    if (!result.holds()) break;
    if (!unreadable.empty() && exists(path)) fail(run.last_step(), unreadable);
    if (!unreadable.empty()) continue;
    try {
      const StoredSnapshot snapshot = find_snapshot(path);
      const Snapshot& state = snapshot.state();
      if (const std::string problem = problem_of_texts(run, state, snapshot.name()); !problem.empty())
        fail(0, problem);
      const bool has_chains = !run.starts.empty() && !run.starts.front().build.empty();
      if (state.chain.link.empty() && has_chains)
        fail(step, concat(snapshot.name(), " has no chain of hashes"));
      if (state.chain.link.empty()) continue;
      int64_t lacks = 0;
      const RunChain chain = chain_of_record(run, state, lacks);
      if (lacks > 0) fail(lacks, "metrics.jsonl has no line of the step");
      if (chain != state.chain)
        fail(state.step, concat("the chain of hashes in ", snapshot.name(), " ends in ", state.chain.link,
                                ", but that of metrics.jsonl, config.ini and data.hash in ", chain.link));
      result.link = chain.link;
      result.last = state.step;
    } catch (const UserError& problem) {
      if (exists(path) || !run.parameters_hash.empty()) fail(step, problem.what());
    }
  }
  return result;
}

Verification verify_steps(const RecordedRun& run, const RunTasks& tasks, const World& world,
                          const Interval& interval) {
  Verification result{.first = interval.first, .last = interval.last == 0 ? run.last_step() : interval.last};
  run.require_step(result.first);
  run.require_step(result.last);
  require(result.first <= result.last, "--from ", result.first, " is after --to ", result.last);
  Verifier(run, tasks, world, result)();
  return result;
}

std::string describe(const RecordedRun& run, const Verification& verification) {
  if (!verification.holds())
    return verification.failed_step == 0 ? concat(run.folder, " does not hold: ", verification.problem, "\n")
                                         : concat(run.folder, ", step ", verification.failed_step,
                                                  " does not hold: ", verification.problem, "\n");
  const std::string from = verification.began_at > 0
                               ? concat("the snapshot of step ", verification.began_at, ", which is trusted")
                               : "the initial values";
  std::string text =
      concat(run.folder, ": steps ", verification.first, " to ", verification.last,
             " hold, computed again from ", from, "; so do ", counted(verification.snapshots, "snapshot"),
             " and ", counted(verification.validations, "validation"), "\n");
  if (verification.snapshots == 0)
    text += concat("no snapshot was compared, so this says nothing about a model",
                   run.snapshots.empty() ? "" : concat(": none of these steps is in ", run.snapshots), "\n");
  if (run.parameters_hash.empty()) text += "metrics.jsonl has no end of the run\n";
  return text + (verification.link.empty()
                     ? "no snapshot has a chain of hashes\n"
                     : concat("the chain of hashes in its snapshots ends in ", verification.link, "\n"));
}

}  // namespace lockstep
