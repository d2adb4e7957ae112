// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/event.h"
#include "core/graph.h"
#include "core/stream.h"
#include "data/loader.h"
#include "dist/data_parallel.h"
#include "parameters/optimizer.h"
#include "train/trainer.h"

namespace lockstep {

/// Brings a step's batches to where kernels read them. On a GPU: through pinned memory and a queue of its
/// own, while the steps before still run, and then to the same addresses every time, as a recorded step needs
/// them. On the CPU a batch is already there.
class BatchFeeder {
 public:
  /// `stream` is the one that computes; no batch has more than `most_samples`.
  BatchFeeder(const Stream& stream, int64_t most_samples);

  /// The batches, in the order of `stream`. They hold until the next call.
  std::vector<Batch> load(const std::vector<Batch>& batches);

 private:
  /// One of two places on the way, so that a step can arrive while another is being read.
  struct Stage {
    std::shared_ptr<std::byte> pinned;
    std::shared_ptr<std::byte> on_device;
    Event arrived;
    Event taken;
  };

  void reserve(const std::vector<Batch>& batches);

  Stream compute_;
  Stream copies_;
  int64_t most_samples_;
  int64_t bytes_ = 0;  ///< of one step's batches
  std::array<Stage, 2> stages_;
  std::shared_ptr<Storage> fixed_;
  int64_t loads_ = 0;
};

/// What a loader has to bring for these.
std::vector<BatchSlice> slices_of(const std::vector<MicroBatch>& micro_batches);

/// What changes a task's parameters, as a configuration asks for it.
struct TrainingEngine {
  /// Gives the space its precision, and keeps a reference to it. All ranks call it. `shares_memory`: where
  /// ranks can, else they send messages.
  TrainingEngine(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
                 bool shares_memory = true);

  std::optional<GradScaler> scaler;  ///< in fp16
  DataParallel data_parallel;
  std::unique_ptr<Optimizer> optimizer;
};

/// What a step tells when it is done.
struct StepResult {
  float loss = 0.0f;           ///< mean over replicas, before the update
  double gradient_norm = 0.0;  ///< before clipping
  bool stop = false;           ///< some rank asked all to stop; equal on every rank, as the next is
  bool snapshot = false;       ///< rank 0 asked for a snapshot
  std::optional<GradScale> grad_scale = {};  ///< after the step, where gradients are scaled

  bool was_skipped() const { return grad_scale && !std::isfinite(gradient_norm); }
};

/// UserError where the loss or the norm of a step is not finite, unless a GradScaler has skipped it.
void require_finite(int64_t step, const StepResult& result, double learning_rate);

/// Runs a training's steps on this rank: forward and backward of each replica, the tree, clipping, the
/// update.
///
/// On a GPU a step is enqueued and its result is read later, so that the host is ahead of the device; nothing
/// in it waits for the host. Where all of it stays on GPUs, the second step is recorded as a graph and
/// replayed from then on. What changes from step to step (batches, step number, learning rate) is brought to
/// fixed places ahead of it, so recorded and enqueued steps are the same work and give the same bits.
class StepRunner {
 public:
  /// Keeps references. `before_votes` is called while there is still time to vote in a step: before it, and
  /// where the host runs it before the backward of each micro-batch.
  StepRunner(const TrainConfig& config, const TrainingTask& task, TrainingEngine& engine,
             std::function<void()> before_votes);

  /// Starts a step; on the CPU it is done when this returns. At most two may be under way.
  void start(const Step& step, double learning_rate);
  /// Waits for the oldest of them. Throws what went wrong in the background, such as a rank that did not
  /// come.
  StepResult collect();

 private:
  /// Where one of two alternating steps leaves its result for the host.
  struct Summary {
    std::shared_ptr<std::byte> memory;
    Event arrived;
  };

  bool on_gpu() const { return device_of(stream_) == Device::cuda; }
  void report_training() const;
  bool can_record(const std::vector<Batch>& batches) const;
  void run(const std::vector<Batch>& batches, int64_t index);
  void backward(const Batch& batch, int64_t index);
  void record(const std::vector<Batch>& batches, int64_t index);
  void copy_summary();

  const TrainConfig& config_;
  const TrainingTask& task_;
  DataParallel& data_parallel_;
  Optimizer& optimizer_;
  std::function<void()> before_votes_;
  Stream stream_;
  BatchFeeder feeder_;
  Tensor step_number_;  ///< i32, for kernels that draw at random
  Tensor loss_;         ///< f32
  Tensor votes_;        ///< f32, in the order of Vote
  Tensor norm_;         ///< f64
  std::unique_ptr<Graph> graph_;
  std::array<Summary, 2> summaries_;
  int64_t started_ = 0;
  int64_t collected_ = 0;
};

}  // namespace lockstep
