// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/verify.h"

#include <algorithm>
#include <map>
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
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/train/run_log.h"

namespace lockstep {
namespace {

/// A snapshot of a run, by its name.
struct ListedSnapshot {
  std::string path;
  int64_t step = 0;          ///< as its name or its state tells; 0: neither does
  std::string problem = {};  ///< why its state cannot be read; only if the name does not tell the step
};

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
  for (const std::string& name : SnapshotStore(run.snapshots, 1).names())
    all.push_back(listed(concat(run.snapshots, "/", name), name));
  std::ranges::stable_sort(all, {}, &ListedSnapshot::step);
  return all;
}

std::string data_lines(const std::map<std::string, std::string>& data) {
  std::string lines;
  for (const auto& [name, hash] : data) lines += concat(name, " = ", hash, "\n");
  return lines;
}

/// Returns the chain of the record up to a step, with the origins of a snapshot. `lacks` becomes the first
/// step without a line.
RunChain chain_of_record(const RecordedRun& run, const Snapshot& snapshot, int64_t& lacks) {
  RunChain chain = RunChain::begin(run.semantic_lines, data_lines(run.data));
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
  if (!run.data.empty() && hash_lines(snapshot.artifacts) != data_lines(run.data))
    return concat("data.hash differs from the data in ", name);
  return "";
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
    if (!recorded->validation_bits.empty()) check_validation(recorded->validation_bits);
  }

  void check_validation(const std::string& recorded) {
    const std::string computed = RunChain::bits_text(static_cast<float>(replayed_.validate()));
    ++result_.validations;
    if (computed != recorded)
      fail(concat("the validation loss has the bits ", computed, ", but metrics.jsonl has ", recorded));
  }

  void check_snapshot(const ListedSnapshot& found) {
    try {
      const StoredSnapshot snapshot = find_snapshot(found.path);
      if (const std::string problem = problem_of_texts(run_, snapshot.state(), snapshot.name());
          !problem.empty())
        return fail(problem);
      if (snapshot.state().step != replayed_.steps_done())
        return fail(concat(snapshot.name(), " says that it is of step ", snapshot.state().step));
      if (const std::string problem = problem_of_state(snapshot.state()); !problem.empty())
        return fail(concat(problem, " in ", snapshot.name()));
      ReplayedRun stored(run_, tasks_, world_);
      stored.load(snapshot);
      ++result_.snapshots;
      if (const auto difference = first_difference(replayed_.tensors(), stored.tensors()))
        fail(concat("the snapshot differs: ",
                    describe(*difference, "the steps computed again", snapshot.name())));
    } catch (const UserError& problem) {
      fail(problem.what());
    }
  }

  /// Returns a problem of the numbers of a snapshot, or an empty text.
  std::string problem_of_state(const Snapshot& state) const {
    if (state.optimizer_steps != replayed_.updates())
      return concat("the optimizer made ", counted(replayed_.updates(), "update"), ", and ",
                    state.optimizer_steps);
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
    if (!unreadable.empty()) fail(run.last_step(), unreadable);
    if (!unreadable.empty()) break;
    try {
      const StoredSnapshot snapshot = find_snapshot(path);
      const Snapshot& state = snapshot.state();
      if (const std::string problem = problem_of_texts(run, state, snapshot.name()); !problem.empty())
        fail(0, problem);
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
      fail(step, problem.what());
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
  return concat(run.folder, ": steps ", verification.first, " to ", verification.last,
                " hold, computed again from ", from, "; so do ", counted(verification.snapshots, "snapshot"),
                " and ", counted(verification.validations, "validation"), "\n",
                verification.link.empty()
                    ? ""
                    : concat("the chain of hashes in its snapshots ends in ", verification.link, "\n"));
}

}  // namespace lockstep
