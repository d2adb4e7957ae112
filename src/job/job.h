// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/stream.h"
#include "lockstep/dist/dist_options.h"
#include "lockstep/language/text_options.h"
#include "lockstep/models/model_options.h"
#include "lockstep/nn/layers.h"
#include "lockstep/parameters/update_options.h"
#include "lockstep/snapshot/snapshot_options.h"

namespace lockstep {

// --help gives meanings, ranges and units of the options.

struct LengthOptions {
  int64_t steps = 0;
  int64_t epochs = 0;
};

struct BatchOptions {
  int64_t batch_size = 8;
  int64_t accumulate = 1;

  /// Returns the sequences of a replica that one forward and backward reads.
  int64_t micro_batch() const { return batch_size / accumulate; }
};

struct ComputeOptions {
  int64_t seed = 1337;
  std::optional<Device> device = {};  ///< empty: a GPU if there is one
  DType precision = DType::f32;
  bool amx = false;
  bool graph = true;
  bool tune_matmul = false;
  int64_t logit_rows = 0;
  Recompute recompute = {};
  int64_t threads = 0;
  double memory_gib = 0.0;
};

struct ValidationOptions {
  int64_t eval_every = 250;
  int64_t patience = 0;
  double min_delta = 0.0;
  int64_t sample_every = 0;
};

/// The records that a run makes of the time of its steps.
enum class LogTrace { none, steps };

struct LogOptions {
  std::string dir;
  int64_t every_steps = 1;
  LogTrace trace = LogTrace::none;
};

/// Everything that a run is told, as values of the rooms that use them. The keys of a program set it.
struct Job {
  TextOptions text;
  ModelOptions model;
  LengthOptions length;
  BatchOptions batches;
  ScheduleOptions schedule;
  OptimizerOptions optimizer;
  ComputeOptions compute;
  ValidationOptions validation;
  DistOptions dist;
  SnapshotOptions snapshots;
  LogOptions log;

  uint64_t seed() const { return static_cast<uint64_t>(compute.seed); }
  int64_t micro_batch() const { return batches.micro_batch(); }
  bool on_gpu() const { return compute.device == Device::cuda; }
  int threads() const { return static_cast<int>(compute.threads); }
  /// Returns the folder or bucket of the snapshots; empty: there are none.
  std::string snapshot_place() const { return place_of_snapshots(snapshots, log.dir); }
};

}  // namespace lockstep
