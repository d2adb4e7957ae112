// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/core/graph.h"
#include "lockstep/core/stream.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/dist/gradient_audit.h"
#include "lockstep/job/job.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// A copier of a step's batches to the device. On a GPU it uses pinned memory and its own stream, while
/// earlier steps still run. Batches arrive at the same addresses in every step, as a recorded step requires.
/// On the CPU it returns batches as they are.
class BatchFeeder {
 public:
  /// `stream` is the stream that computes. No batch may have more than `most_samples` samples.
  BatchFeeder(const Stream& stream, int64_t most_samples);

  /// Returns the batches on the device, ready in the order of `stream`. They are valid until the next call.
  std::vector<Batch> load(const std::vector<Batch>& batches);

 private:
  /// Staging buffers, pinned and on the device. One of two pairs receives a step while the other is read.
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
  int64_t bytes_ = 0;  ///< size of the batches of one step
  std::array<Stage, 2> stages_;
  std::shared_ptr<Storage> fixed_;
  int64_t loads_ = 0;
};

/// Returns how this rank loads the batches of a training, for TrainingEngine::loader().
Loader::Options loader_options(const Job& job, const World& world, const TrainingTask& task);

/// The objects that update a task's parameters, made from a configuration.
struct TrainingEngine {
  /// Sets the space's precision and keeps a reference to it. All ranks call it. With `shares_memory` the
  /// ranks of a host share memory if they can; otherwise they send messages.
  TrainingEngine(const Job& job, const World& world, const TrainingTask& task, ParameterSpace& space,
                 bool shares_memory = true);

  /// Returns a loader of this rank's micro-batches and of those that steps audit. A step whose loader is
  /// another one is not audited.
  Loader loader(const TrainingTask& task, Loader::Options options) const;

  std::optional<GradScaler> scaler;  ///< for fp16 only
  DataParallel data_parallel;
  std::unique_ptr<Optimizer> optimizer;
  detail::GradientAudit audit;
};

/// The result of a step.
struct StepResult {
  float loss = 0.0f;                         ///< mean over replicas, before the update
  double gradient_norm = 0.0;                ///< before clipping
  bool stop = false;                         ///< a rank asked all to stop; equal on every rank
  bool snapshot = false;                     ///< rank 0 asked for a snapshot; equal on every rank
  std::optional<GradScale> grad_scale = {};  ///< after the step, if gradients are scaled

  bool was_skipped() const { return grad_scale && !std::isfinite(gradient_norm); }
};

/// Returns whether the loss and the gradient norm of a step are finite. Accepts a step that the GradScaler
/// skipped, unless its scale is too small for gradients in fp16.
bool is_finite(const StepResult& result);
/// Throws UserError unless is_finite().
void require_finite(int64_t step, const StepResult& result, double learning_rate);

/// A runner of the steps of a training on this rank: forward and backward of each replica, the tree,
/// clipping, the update.
///
/// On a GPU a step is enqueued and its result is read later, so the host runs ahead of the device. Nothing in
/// a step waits for the host. If a step stays on GPUs, the second one is recorded as a graph and replayed
/// from then on. Batches, step number, learning rate and the factor of the losses change from step to step.
/// They are copied to fixed addresses before the step. So recorded and enqueued steps are the same work and
/// give the same bits.
class StepRunner {
 public:
  /// Keeps references to its arguments. `before_votes` is called when a rank can still vote in a step: before
  /// the step. On the CPU it is also called before the backward of each micro-batch.
  StepRunner(const Job& job, const TrainingTask& task, TrainingEngine& engine,
             std::function<void()> before_votes);

  /// Starts a step. On the CPU it is done when this returns. At most two steps may wait for collect().
  void start(const Step& step, double learning_rate);
  /// Waits for the oldest started step. Throws errors from the background, such as a rank that timed out.
  StepResult collect();

 private:
  /// The memory of a step summary on the host. Two of them alternate.
  struct Summary {
    std::shared_ptr<std::byte> memory;
    Event arrived;
  };

  bool on_gpu() const { return device_of(stream_) == Device::cuda; }
  void report_training() const;
  bool can_record(const std::vector<Batch>& batches) const;
  void run(const std::vector<Batch>& batches, int64_t index, const std::optional<Batch>& audited);
  Tensor loss(const Batch& batch, int64_t index) const;
  void record(const std::vector<Batch>& batches, int64_t index);
  void copy_summary();

  const Job& job_;
  const TrainingTask& task_;
  DataParallel& data_parallel_;
  Optimizer& optimizer_;
  detail::GradientAudit& audit_;
  std::function<void()> before_votes_;
  Stream stream_;
  BatchFeeder feeder_;
  Tensor step_number_;     ///< i32, for kernels that draw random numbers
  Tensor inverse_count_;   ///< f32, Step::inverse_count; empty: each micro-batch counts its own targets
  Tensor loss_and_votes_;  ///< f32, the votes in the order of Vote
  Tensor norm_;            ///< f64
  std::unique_ptr<Graph> graph_;
  std::array<Summary, 2> summaries_;
  int64_t whole_samples_ = 0;  ///< most samples of a micro-batch so far
  int64_t started_ = 0;
  int64_t collected_ = 0;
};

}  // namespace lockstep
