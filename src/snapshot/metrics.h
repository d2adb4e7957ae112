// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/descriptor.h"
#include "kernels/grad_scale.h"

namespace lockstep {

/// What is recorded of one training step.
struct StepMetrics {
  int64_t step = 0;         ///< completed steps, from 1
  int64_t epoch = 0;        ///< of its samples, from 0
  double unix_seconds = 0;  ///< when it ended: since 1970, by this machine's clock
  float loss = 0;           ///< mean over the replicas, before the update
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  double tokens_per_second = 0;
  double step_ms = 0;
  double exposed_communication_ms = 0;  ///< part of the step that waited for other ranks
  double data_wait_ms = 0;
  double model_flops_utilization = 0;  ///< share of the processor's peak
  double memory_mib = 0;
  std::optional<double> validation_loss = {};  ///< where evaluated
  std::optional<GradScale> grad_scale = {};    ///< after the step, of a run in fp16
};

/// Appends to metrics.jsonl: one whole line a step, out of the process at once. Rank 0 only. If the disk is
/// full that is reported once, the line is left out whole, and training goes on.
class MetricsWriter {
 public:
  /// Makes the folder. Keeps the lines up to `resume_step` (0: none) and cuts off the rest.
  /// Throws UserError naming log.dir if the file cannot be written.
  MetricsWriter(const std::string& path, int64_t resume_step);

  void write(const StepMetrics& metrics);
  /// Adds a validation loss to the line of this step, which is the last one.
  void add_validation_loss(int64_t step, double loss);
  /// Makes the lines so far durable.
  void sync();
  /// The last line of a run that is complete; `patience`: it stopped early, with that much of it.
  void finish(uint64_t parameters_hash, int64_t patience = 0);

 private:
  void append(std::string line);

  std::string path_;
  Descriptor file_;
  bool failed_ = false;
};

/// What the end of a metrics.jsonl tells of its run.
struct MetricsEnd {
  int64_t step = 0;             ///< of the last whole line; 0: there is none
  std::string parameters_hash;  ///< of a run that is complete; else empty
  int64_t patience = 0;         ///< of a run that stopped early; else 0
};
MetricsEnd read_metrics_end(const std::string& path);

/// The line of metrics.jsonl for a step, without the line's end. A loss that is not finite is null there, but
/// exact in loss_bits.
std::string to_json(const StepMetrics& metrics);

}  // namespace lockstep
