// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/core/graph.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel_options.h"
#include "lockstep/dist/distributed_values.h"
#include "lockstep/dist/step_summary.h"
#include "lockstep/movement/micro_batch.h"
#include "lockstep/parameters/grad_scaler.h"
#include "lockstep/parameters/optimizer.h"

namespace lockstep {

/// Facts about a DataParallel. They never change.
struct DataParallelSetup {
  /// The micro-batches of this rank in order. Each needs one backward() call. An empty one runs on the data
  /// that it names, so that all ranks stay together.
  std::vector<MicroBatch> micro_batches;
  Sharding sharding;
  Offload offload;           ///< data that is stored on the host; `none` if the model computes on a CPU
  const char* transport;     ///< how gradients travel: "by NCCL", "through the host", ...
  int gradient_sets;         ///< gradient buffers of this rank, each as large as the model
  bool is_capturable;        ///< a step may be recorded as a graph, after one has run unrecorded
  const GradScaler* scaler;  ///< that of the options, or null
};

/// Trains one model on all ranks of a world. V logical replicas define what a step computes, and N ranks
/// execute them.
///
///     ParameterSpace space(model.parameters());
///     DataParallel ddp(space, world, {.replicas = 8});
///     AdamW optimizer(space, {});
///     Loader loader = ddp.loader(data, {.batch_size = 32});
///     for (const Batch& batch : loader.next().batches)   // the micro-batches of this rank, in order
///       ddp.backward(loss_of(batch));
///     ddp.step(optimizer, learning_rate, max_norm);      // each rank updates what it owns
///
/// A loop that needs the gradients calls `float loss = ddp.wait(); optimizer.step(learning_rate);` instead.
/// The bits are equal. On a GPU, call finish() instead of wait() to avoid blocking the host. With a
/// GradScaler (Options), backward() and step() do its work. After wait(), call scaler.step() and
/// scaler.update().
///
/// With sharding (Options::shard) each rank keeps a part, and the bits are equal again. Set the model's
/// precision before this object is made. With full sharding, begin_step() comes first:
///
///     ddp.begin_step();
///     for (const Batch& batch : loader.next().batches) ddp.backward(loss_of(batch));
///     ddp.step(optimizer, learning_rate, max_norm);
///
/// With Options::offload a GPU keeps data in host memory. The loop is the same, and step() updates on the
/// host.
class DataParallel {
 public:
  using Options = DataParallelOptions;

  /// Compares the parameters of all ranks. Throws UserError naming the first that differs. Sends rank 0's
  /// values to all ranks that keep them. Parameters are f32. Keeps a reference to the space.
  DataParallel(ParameterSpace& space, const World& world, Options options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Returns the replicas of this rank's micro-batches, in order.
  std::vector<int> replicas() const;
  int total_replicas() const { return options_.replicas; }
  /// Returns a loader of this rank's micro-batches. It sets the options about replicas and micro-batches.
  Loader loader(std::shared_ptr<const Dataset> data, Loader::Options options) const;

  /// Begins a step. All ranks run the same operations until the step ends. With full sharding, call it before
  /// any operation that reads parameters.
  void begin_step();
  /// Runs `body`, in which all ranks run the same operations outside of a step. Use it for an evaluation or
  /// for generating text. Errors of the body and of its end reach the caller.
  void together(const std::function<void()>& body);

  /// Returns the mean of `loss` over the targets of a data set that count. Ranks share its batches, and the
  /// result has the same bits for any number of ranks. All ranks call it, and `before_batch` before each of
  /// their batches. An exception that `before_batch` throws on all ranks ends the evaluation.
  double evaluate(const Dataset& data, int64_t batch_size, const std::function<Tensor(const Batch&)>& loss,
                  const std::function<void(int64_t done, int64_t batches)>& before_batch = {});

  /// Runs the backward of the next micro-batch. Throws Error naming a parameter that the loss does not use,
  /// and UserError naming a trained leaf that no space holds. Leaves of other spaces are constants.
  /// Throws Error if it is called more often than this rank has micro-batches.
  void backward(const Tensor& loss);
  /// Ends the step. Every parameter's grad() is then the mean over replicas, for all work queued from now on.
  /// Throws Error if a backward() call is missing or gradients are sharded. The first step throws UserError
  /// naming a matrix of zeros.
  void finish() { end_step(true); }
  /// Calls finish() and returns the mean loss. The host waits for it.
  float wait();

  /// Ends the step instead of finish(), clipping and Optimizer::step(). Each rank measures and updates its
  /// owned ranges, then values are gathered. `max_norm` = 0 disables clipping. Afterwards grad() throws until
  /// gather_gradients(). The optimizer's states on this rank are then valid only for its owned ranges.
  void step(Optimizer& optimizer, double learning_rate, double max_norm = 0.0);
  /// Does the part of step() that can be recorded, after optimizer.prepare(learning_rate). With a GradScaler,
  /// call the optimizer's count_on_device() before prepare(). All ranks run `check` when the gradients are
  /// reduced. If it throws, nothing is updated.
  void update(Optimizer& optimizer, double max_norm, const std::function<void()>& check = {});
  /// Makes every parameter's grad() the mean over replicas, after step(). All ranks call it. Throws Error if
  /// gradients are sharded. Throws Error with a GradScaler, because its scale may have changed by then.
  void gather_gradients();
  /// Moves the optimizer's states to their final memory. They are sharded, or shared by the ranks of a host
  /// if possible. step() does it if the caller does not.
  void place_states(Optimizer& optimizer);

  /// Starts a recorded step by step.launch(). Its communication has the deadline and an entry in the flight
  /// record.
  void replay(const Graph& step);
  /// Throws the error that occurred in the background, if any. Call it once the GPU's results are read.
  void check();

 private:
  // The public parts are made of these.
  ParameterSpace& space_;
  std::shared_ptr<Communicator> communicator_;
  Options options_;
  Tensor summary_memory_;
  std::unique_ptr<detail::GradientReducer> reducer_;  ///< destroyed before `summary_memory_`, which it made

 public:
  const DataParallelSetup setup;
  DistributedValues values;
  StepSummary summary;  ///< the results of a step, and votes

 private:
  DataParallelSetup set_up();
  void hook(size_t parameter);
  void bind_leaf(size_t parameter);
  void check_start();
  void end_step(bool everything);
  void count_down(int bucket);
  void on_ready(size_t parameter);
  void expect_same_precision() const;
  Tensor gradients_of(int slot) const;
  /// Returns the number of micro-batches that are added before anything is sent.
  int micro_batches_per_leaf() const;
  int owed() const { return static_cast<int>(setup.micro_batches.size()); }
  const std::vector<Range>& mine() const {
    return setup.sharding.updates[static_cast<size_t>(communicator_->rank())];
  }

  DType precision_;                   ///< the model's precision when values and copies were sharded
  std::vector<Tensor> slots_;         ///< [slot]: the reserved elements, then the trainable ones
  std::vector<Tensor> known_states_;  ///< states that place_states() has placed
  bool updates_by_owners_ = false;    ///< in the last step each rank updated its owned ranges
  bool is_scattered_ = false;         ///< slot 0 holds the mean of this rank's owned ranges alone
  std::vector<bool> is_ready_;        ///< [parameter], in the running backward
  std::vector<int> missing_in_bucket_;
  int micro_batches_done_ = 0;
};

}  // namespace lockstep
