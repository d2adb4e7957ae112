// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/replay/explain.h"
#include "lockstep/replay/recorded_run.h"
#include "lockstep/replay/run_tasks.h"

namespace lockstep {

/// Computes the steps of a run again from its newest snapshot before `last`, up to `last`. Returns the first
/// step with other bits than the record; 0: none.
int64_t first_other_step(const RecordedRun& run, const RunTasks& tasks, const World& world, int64_t last);

/// Two runs of the same keys and data, and the tasks that compute both.
struct ComparedRuns {
  const RecordedRun& a;
  const RecordedRun& b;
  const RunTasks& tasks;
  const World& world;
};

/// Looks for a snapshot of a run that the steps before it do not compute, up to step `last`. Computes from
/// the initial values. Fills the cause, and returns whether it has found one.
bool find_wrong_snapshot(const ComparedRuns& runs, int64_t last, Explanation& explanation);

/// Describes a step of `wrong`'s record that this build does not compute. `right` is the other run, whose
/// record it computes. `name`: "A" or "B", that of the wrong run.
void describe_fault(const ComparedRuns& runs, const RecordedRun& right, const RecordedRun& wrong,
                    const std::string& name, int64_t step, Explanation& explanation);

/// How the programs of two builds compute the same steps.
enum class BuildsResult {
  differ,       ///< with other bits: the cause is found
  equal,        ///< with the same bits
  unavailable,  ///< not at all, because programs are missing: Explanation::because has the reason
};

/// Computes steps up to `last` of run A by the programs of both builds, and finds the first operation with
/// other bits.
BuildsResult compare_builds(const ComparedRuns& runs, const ExplainOptions& options, int64_t last,
                            Explanation& explanation);

}  // namespace lockstep
