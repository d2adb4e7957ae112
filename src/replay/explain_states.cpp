// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/metrics/chain.h"
#include "lockstep/replay/explain_parts.h"
#include "lockstep/replay/replay_step.h"
#include "lockstep/replay/replayed_run.h"
#include "lockstep/replay/tensor_difference.h"

namespace lockstep {
namespace {

/// Returns whether a step that was computed has the bits of its line. A line that is missing has no bits.
bool is_reproduced(const RecordedRun& run, const ReplayedStep& step) {
  const RecordedStep* const recorded = run.step(step.step);
  return recorded == nullptr || (recorded->loss_bits == step.loss_bits() &&
                                 same_number(recorded->learning_rate, step.learning_rate) &&
                                 same_number(recorded->gradient_norm, step.result.gradient_norm));
}

/// Returns whether the values after the steps that are done have the validation loss and the hash of the
/// record, as far as that has them.
bool has_recorded_values(const RecordedRun& run, ReplayedRun& replayed) {
  const RecordedStep* const recorded = run.step(replayed.steps_done());
  if (recorded != nullptr && !recorded->validation_bits.empty() &&
      RunChain::bits_text(static_cast<float>(replayed.validate())) != recorded->validation_bits)
    return false;
  const bool is_end = replayed.steps_done() == run.last_step() && !run.parameters_hash.empty();
  return !is_end || hash_text(replayed.hash()) == run.parameters_hash;
}

/// Compares the state of computed steps with a snapshot of a run.
std::optional<TensorDifference> difference_from(const ComparedRuns& runs, const ReplayedRun& computed,
                                                const RecordedRun& run, const StoredSnapshot& snapshot) {
  ReplayedRun stored(run, runs.tasks, runs.world);
  stored.load(snapshot);
  return first_difference(computed.tensors(), stored.tensors());
}

DifferencePlace place_of(const TensorDifference& difference, int64_t step) {
  return {.step = step,
          .direction = "",
          .operation = "",
          .parameter = difference.tensor,
          .element = difference.element,
          .a = difference.a,
          .b = difference.b};
}

}  // namespace

int64_t first_other_step(const RecordedRun& run, const RunTasks& tasks, const World& world, int64_t last) {
  ReplayedRun replayed(run, tasks, world);
  replayed.load(last - 1);
  while (replayed.steps_done() < last)
    if (const ReplayedStep step = replayed.next(); !is_reproduced(run, step)) return step.step;
  return has_recorded_values(run, replayed) ? 0 : last;
}

bool find_wrong_snapshot(const ComparedRuns& runs, int64_t last, Explanation& explanation) {
  const auto of_a = runs.a.read_snapshots(), of_b = runs.b.read_snapshots();
  std::set<int64_t> steps;
  for (const auto* snapshots : {&of_a, &of_b})
    for (const auto& [step, snapshot] : *snapshots)
      if (step <= last) steps.insert(step);
  ReplayedRun computed(runs.a, runs.tasks, runs.world);
  computed.begin();
  std::set<std::string> wrong;
  for (const int64_t step : steps) {
    computed.go_to(step);
    for (const auto& [run, name, snapshots] :
         {std::tuple(&runs.a, "A", &of_a), std::tuple(&runs.b, "B", &of_b)}) {
      const auto snapshot = snapshots->find(step);
      if (wrong.contains(name) || snapshot == snapshots->end()) continue;
      const auto difference = difference_from(runs, computed, *run, snapshot->second);
      if (!difference) continue;
      if (wrong.empty()) explanation.place = place_of(*difference, step);
      wrong.insert(name);
      explanation.because += concat(
          "The snapshot of step ", step, " of ", name, " has other values than its steps compute: ",
          describe(*difference, "the steps computed again", "the snapshot"),
          ". The processor, the memory or the disk of ", name, " was wrong, or the snapshot was changed. ");
    }
  }
  if (wrong.empty()) return false;
  explanation.cause = "snapshot";
  explanation.run = joined(wrong, " and ");
  explanation.because = trimmed(explanation.because);
  return true;
}

void describe_fault(const ComparedRuns& runs, const RecordedRun& right, const RecordedRun& wrong,
                    const std::string& name, int64_t step, Explanation& explanation) {
  explanation.cause = "fault";
  explanation.run = name;
  explanation.place = DifferencePlace{.step = step};
  explanation.because =
      concat("Computing step ", step, " again gives the bits of the other run, not those of ", name,
             ". The processor or the memory of ", name,
             " was wrong in that step, or in an earlier one "
             "without a trace until then.");
  ReplayedRun computed(right, runs.tasks, runs.world);
  computed.load(step - 1);
  // The update before this step may have been wrong. Then a snapshot between them shows it.
  computed.go_to(step - 1);
  bool is_right_later = false, is_wrong_later = false;
  constexpr int64_t most_steps = 100;
  const int64_t end = std::min(wrong.last_step(), step + most_steps);
  const std::map<int64_t, StoredSnapshot> snapshots = wrong.read_snapshots();
  const auto next_snapshot = snapshots.lower_bound(step - 1);
  while (true) {
    const int64_t done = computed.steps_done();
    if (next_snapshot != snapshots.end() && next_snapshot->first == done) {
      const auto difference = difference_from(runs, computed, wrong, next_snapshot->second);
      if (difference) {
        explanation.place = place_of(*difference, step);
        explanation.because += concat(" Its snapshot of step ", done, ": ",
                                      describe(*difference, "the steps computed again", "the snapshot"), ".");
      }
      if (done >= step) (difference ? is_wrong_later : is_right_later) = true;
    }
    const bool has_seen_enough = next_snapshot == snapshots.end() || next_snapshot->first <= done;
    if (done >= end || (done > step && has_seen_enough)) break;
    const ReplayedStep next = computed.next();
    if (next.step > step) (is_reproduced(wrong, next) ? is_right_later : is_wrong_later) = true;
  }
  if (is_wrong_later || !is_right_later) return;
  explanation.cause = "record";
  explanation.because =
      concat("Only the record of step ", step, " in the metrics.jsonl of ", name,
             " is wrong: what follows has the bits that are computed again. The file was changed, or the "
             "numbers that it shows were.");
}

}  // namespace lockstep
