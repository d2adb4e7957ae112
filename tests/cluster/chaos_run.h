// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The phase in which a run is struck.
enum class Moment { any, snapshot, validation, sample, start };
const char* name(Moment moment);

/// A signal that is sent to a rank of a run. If ranks_after is set, it is sent to lockrun itself.
struct Strike {
  int signal = 0;
  int64_t at_step = 0;          ///< the strike waits until this step is completed
  Moment moment = Moment::any;  ///< the strike waits for this phase; at `start` no step is completed
  uint32_t victim = 0;          ///< index of the rank, modulo the number of ranks
  int ranks_after = 0;  ///< ranks of the lockrun that is started next; 0: lockrun restarts the ranks itself
};

/// The result of a strike.
struct StrikeResult {
  bool happened = false;       ///< false: the run was over before
  bool hit_moment = false;     ///< the phase was not over when the signal was sent
  int64_t step = 0;            ///< the last completed step
  double restart_seconds = 0;  ///< until other processes have replaced all ranks
  double resume_seconds = 0;   ///< until another step is completed
};

struct ChaosPlan {
  uint64_t seed = 0;
  int ranks = 2;
  std::vector<Strike> strikes;
};

/// Returns the plan of a run. It has one to three strikes. For a resize it has one, after which the run
/// continues with another number of ranks.
ChaosPlan make_plan(uint64_t seed, bool is_resize, int64_t steps);

/// The program of a run, its arguments and its folder.
struct ChaosSetup {
  std::string lockrun;
  std::string program;                 ///< train_gpt
  std::vector<std::string> arguments;  ///< the program's arguments, without its folders
  std::string folder;                  ///< the run's folder; created if missing
  double limit_seconds = 180.0;        ///< a job that takes longer counts as hung
};

struct ChaosResult {
  std::vector<StrikeResult> strikes;
  int exit_code = -1;
  double seconds = 0.0;
  std::string problem;  ///< empty if it ended well and left no process behind

  bool was_struck() const;
};

/// Runs lockrun to its end, with the strikes. Results are in <folder>/run and the output is in <folder>/said.
ChaosResult run_with_chaos(const ChaosSetup& setup, const ChaosPlan& plan);

}  // namespace lockstep
