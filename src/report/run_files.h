// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/events/events.h"
#include "lockstep/report/series.h"
#include "lockstep/report/step_spans.h"

namespace lockstep {

/// The metrics of a run, read from metrics.jsonl in one pass.
struct RunMetrics {
  explicit RunMetrics(size_t most_bins);

  // By step:
  Series loss, validation, learning_rate, gradient_norm, tokens_per_second, memory_mib, loss_scale;
  /// The step by the seconds since 1970.
  Series progress;

  int64_t steps = 0;  ///< the last step; 0: none
  double begin = 0;   ///< of the first step that has a line, in seconds since 1970
  double end = 0;
  double last_loss = 0;
  std::optional<double> best_validation, last_validation;
  int64_t best_step = 0;  ///< of the best validation
  // Medians over all steps:
  double median_tokens_per_second = 0, median_step_ms = 0, median_exposed_ms = 0, median_wait_ms = 0;

  bool is_complete = false;
  int64_t patience = 0;  ///< not 0 if the run stopped early
  std::string parameters_hash = {};
};

/// Everything that a report shows of a run.
struct RunFiles {
  std::string folder;
  std::string name;                             ///< short, and different from those of the other runs
  std::map<std::string, std::string> settings;  ///< of config.ini
  std::map<std::string, std::string> data;      ///< hashes of the data, by name
  RunMetrics metrics;
  std::vector<RunEvent> events;
  std::vector<RankSpans> traces;  ///< of ranks that recorded the spans of their steps, in their order
};

/// The bins of a series in a report of so many runs, which bounds the size of the page.
size_t bins_for(size_t runs);

/// Reads a metrics.jsonl of any length. Lines that are torn or of another kind are skipped.
RunMetrics read_metrics(const std::string& path, size_t most_bins);

/// Reads the folders of runs. Throws UserError that names a folder that is no run.
std::vector<RunFiles> read_runs(const std::vector<std::string>& folders);

}  // namespace lockstep
