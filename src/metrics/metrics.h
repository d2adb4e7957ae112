// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/core/descriptor.h"
#include "lockstep/kernels/grad_scale_state.h"

namespace lockstep {

/// The metrics recorded for one training step.
struct StepMetrics {
  int64_t step = 0;         ///< completed steps, from 1
  int64_t epoch = 0;        ///< epoch of the samples, from 0
  double unix_seconds = 0;  ///< end of the step: seconds since 1970 by this machine's clock
  float loss = 0;           ///< mean over the replicas, before the update
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  double tokens_per_second = 0;
  double step_ms = 0;
  double exposed_communication_ms = 0;  ///< time that the step waited for other ranks
  double data_wait_ms = 0;
  double model_flops_utilization = 0;  ///< share of the processor's peak
  double memory_mib = 0;
  std::optional<double> validation_loss = {};  ///< only if evaluated after this step
  std::optional<GradScale> grad_scale = {};    ///< after the step; only in fp16 runs
};

/// A writer of metrics.jsonl, on rank 0 only. Each step appends one whole line, which leaves the process at
/// once. If the disk is full, lines wait in memory for the next step, and training continues.
class MetricsWriter {
 public:
  /// Creates the folder. Keeps the lines up to `resume_step` (0: none) and cuts off the rest in place, which
  /// reads some hundred KiB of a file of any length. Throws UserError naming log.dir if the file cannot be
  /// written, and Error if its disk is full or fails. `guard` is called before a line if another process has
  /// changed the file. It throws if the file belongs to a later start of the run.
  MetricsWriter(const std::string& path, int64_t resume_step, std::function<void()> guard = {});
  /// Tries once more to write the lines in memory. Logs how many are lost.
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepMetrics& metrics);
  /// Adds a validation loss to the line of `step`, which is the last line.
  void add_validation_loss(int64_t step, double loss);
  /// Syncs the lines written so far to disk. Any thread may call it.
  void sync();
  /// Appends the last line of a complete run. `patience`: that of a run that stopped early, else 0. Returns
  /// false, and logs it, if the file lacks lines.
  [[nodiscard]] bool finish(uint64_t parameters_hash, int64_t patience = 0);

 private:
  void append(const std::string& line);
  bool write_kept();
  std::string missing() const;
  struct timespec changed() const;

  std::string path_;
  std::function<void()> guard_;
  Descriptor file_;
  struct timespec changed_ {};    ///< time of this process's last change
  std::deque<std::string> kept_;  ///< whole lines that are not in the file yet
  int64_t dropped_ = 0;           ///< lines beyond the most that are kept
  std::string reason_ = {};       ///< why the file lacks lines
};

/// The state of a run, from the end of its metrics.jsonl.
struct MetricsEnd {
  int64_t step = 0;             ///< step of the last whole line; 0: none
  std::string parameters_hash;  ///< only if the run is complete; else empty
  int64_t patience = 0;         ///< only if the run stopped early; else 0
};
/// Reads the end of a metrics.jsonl.
MetricsEnd read_metrics_end(const std::string& path);

/// Returns a step's line, without the newline. A loss that is not finite is null; loss_bits has its bits.
std::string to_json(const StepMetrics& metrics);

}  // namespace lockstep
