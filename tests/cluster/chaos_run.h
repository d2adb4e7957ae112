// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What a run is at when it is struck.
enum class Moment { any, snapshot, validation, sample, start };
const char* name(Moment moment);

/// One blow that a run gets: for one of its ranks, or, where ranks_after says so, for lockrun itself.
struct Strike {
  int signal = 0;
  int64_t at_step = 0;          ///< not before this step is completed
  Moment moment = Moment::any;  ///< wait until the run is at this; at the start no step is completed
  uint32_t victim = 0;          ///< modulo the number of ranks
  int ranks_after = 0;          ///< lockrun is started again with so many ranks; 0: it restarts them itself
};

/// What became of it.
struct StrikeResult {
  bool happened = false;       ///< false: the run was over before
  bool hit_moment = false;     ///< it was still at it when it was struck
  int64_t step = 0;            ///< the last completed one
  double restart_seconds = 0;  ///< until all ranks are other processes
  double resume_seconds = 0;   ///< until a step is completed again
};

struct ChaosPlan {
  uint64_t seed = 0;
  int ranks = 2;
  std::vector<Strike> strikes;
};

/// The plan of a run: one to three strikes, or, for a resize, one that comes back with another number of
/// ranks.
ChaosPlan make_plan(uint64_t seed, bool is_resize, int64_t steps);

/// What is run, and where.
struct ChaosSetup {
  std::string lockrun;
  std::string program;                 ///< train_gpt
  std::vector<std::string> arguments;  ///< of the program, without its folders
  std::string folder;                  ///< of this run; made
  double limit_seconds = 180.0;        ///< a job that takes longer hangs
};

struct ChaosResult {
  std::vector<StrikeResult> strikes;
  int exit_code = -1;
  double seconds = 0.0;
  std::string problem;  ///< empty if it ended well and left no process behind

  bool was_struck() const;
};

/// Runs lockrun to its end, and strikes. The results are in <folder>/run, what was said in <folder>/said.
ChaosResult run_with_chaos(const ChaosSetup& setup, const ChaosPlan& plan);

}  // namespace lockstep
