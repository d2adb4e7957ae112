// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/job/keys.h"
#include "lockstep/snapshot/stored_snapshot.h"

namespace lockstep {

/// A step as metrics.jsonl has it.
struct RecordedStep {
  int64_t step = 0;
  std::string loss_bits;  ///< RunChain::bits_text()
  double loss = 0.0;      ///< NaN if it was not finite
  double gradient_norm = 0.0;
  double learning_rate = 0.0;
  std::optional<double> validation_loss = {};  ///< after the step
  std::string validation_bits = {};            ///< of that loss, as fp32; empty: none
};

/// A start of a run, as events.jsonl has it. Facts that the run did not record are empty.
struct RecordedStart {
  int64_t step = 0;     ///< steps that were done before
  std::string program;  ///< path of the program
  std::string build;    ///< build_text()
  std::string scope;    ///< scope of the bits (train/run_log.h)
};

/// A run as its folder describes it. Only its snapshots are read later.
struct RecordedRun {
  std::string folder;
  Settings settings;                             ///< of all keys; log.dir is `folder`
  std::string semantic_lines = {};               ///< of its config.ini
  std::string data_lines = {};                   ///< its data.hash
  std::map<std::string, std::string> data = {};  ///< hashes of the data by name (hash_lines())
  std::vector<RecordedStep> steps = {};          ///< in order; lines that the file lacks are missing
  int64_t odd_line_after = -1;  ///< a line after this step is neither the next step nor the end; -1: none
  std::string parameters_hash = {};        ///< only if the run is complete; else empty
  std::vector<RecordedStart> starts = {};  ///< in the order of time
  std::string snapshots = {};              ///< folder or bucket; empty: none

  /// Returns the number of the last step; 0: none.
  int64_t last_step() const { return steps.empty() ? 0 : steps.back().step; }
  /// Returns the line of a step; null if the file lacks it.
  const RecordedStep* step(int64_t number) const;
  /// Returns the start that computed a step.
  RecordedStart start_of(int64_t number) const;
  /// Throws UserError if the run did not end this step. With `or_next` it may be the first that it did not
  /// end, where it may have diverged.
  void require_step(int64_t number, bool or_next = false) const;

  /// Returns its snapshots by their steps. Damaged ones are left out, with a warning.
  std::map<int64_t, StoredSnapshot> read_snapshots() const;
  /// Returns the newest snapshot of at most this many steps, or nothing.
  std::optional<StoredSnapshot> snapshot_before(int64_t steps) const;
};

/// Returns whether two numbers are equal, or neither is finite. JSON has no numbers that are not finite.
inline bool same_number(double a, double b) { return a == b || (!std::isfinite(a) && !std::isfinite(b)); }

/// Returns a hint that follows a difference if the start computed in another scope than `here`; else an empty
/// text.
std::string scope_hint(const RecordedStart& start, const std::string& here);

/// Returns the shortest text that names the number.
std::string shortest_text(double number);

/// Reads the folder of a run. `overrides` may have another snapshot.path. Throws UserError that names the
/// folder if it is not that of a run.
RecordedRun read_run(const std::string& folder, const SettingLayer& overrides = {});

}  // namespace lockstep
