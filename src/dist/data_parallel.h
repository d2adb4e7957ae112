// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/world.h"
#include "core/graph.h"
#include "dist/distributed_values.h"
#include "parameters/grad_scaler.h"
#include "parameters/optimizer.h"

namespace lockstep {

/// A request of one rank to all ranks. It travels with the gradients. So all ranks learn it after the same
/// step, without an extra message.
enum class Vote {
  stop,      ///< stop after the step
  snapshot,  ///< write a snapshot after the step
};

/// Trains one model on all ranks of a world. V logical replicas define what a step computes, and N ranks
/// execute them.
///
///     ParameterSpace space(model.parameters());
///     DataParallel ddp(space, world, {.replicas = 8});
///     AdamW optimizer(space, {});
///     for (const Batch& batch : my_batches)              // one per replica of this rank, in order
///       ddp.backward(loss_of(batch));                    // `accumulate` calls a replica
///     ddp.step(optimizer, learning_rate, max_norm);      // each rank updates what it owns
///
/// A loop that needs the gradients calls `float loss = ddp.wait(); optimizer.step(learning_rate);` instead.
/// The bits are equal. On a GPU, call finish() instead of wait() to avoid blocking the host. With a
/// GradScaler (Options), backward() and step() do its work. After wait(), call scaler.step() and
/// scaler.update().
///
/// With sharding (Options::shard) each rank keeps a part, and the bits are equal again. Set the model's
/// precision before this object is made, and take batches from micro_batches(). With full sharding,
/// begin_step() comes first:
///
///     ddp.begin_step();
///     for (const MicroBatch& part : ddp.micro_batches()) ddp.backward(loss_of(part));
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

  /// Returns the micro-batches of this rank in order. Each needs one backward() call. An empty one runs on
  /// the data that it names, so that all ranks stay together.
  const std::vector<MicroBatch>& micro_batches() const { return micro_batches_; }
  /// Returns the replicas of this rank's micro-batches, in order.
  std::vector<int> replicas() const;
  int total_replicas() const { return options_.replicas; }
  const Sharding& sharding() const { return sharding_; }
  /// Returns the data that is stored on the host. It is `none` if the model computes on a CPU.
  Offload offload() const { return offload_; }

  /// Begins a step. All ranks run the same operations until the step ends. With full sharding, call it before
  /// any operation that reads parameters.
  void begin_step();
  /// Runs `body`, in which all ranks run the same operations outside of a step. Use it for an evaluation or
  /// for generating text. Errors of the body and of its end reach the caller.
  void together(const std::function<void()>& body);

  /// Runs the backward of the next micro-batch. Throws Error naming a parameter that the loss does not use.
  /// Throws Error if it is called more often than this rank has micro-batches.
  void backward(const Tensor& loss);
  /// Ends the step. Every parameter's grad() is then the mean over replicas, for all work queued from now on.
  /// Throws Error if a backward() call is missing or gradients are sharded.
  void finish();
  /// Calls finish() and returns the mean loss. The host waits for it.
  float wait();

  /// Ends the step instead of finish(), clipping and Optimizer::step(). Each rank measures and updates its
  /// owned ranges, then values are gathered. `max_norm` = 0 disables clipping. Afterwards grad() throws until
  /// gather_gradients(). The optimizer's states on this rank are then valid only for its owned ranges.
  void step(Optimizer& optimizer, double learning_rate, double max_norm = 0.0);
  /// Does the part of step() that can be recorded, after optimizer.prepare(learning_rate). With a GradScaler,
  /// call the optimizer's count_on_device() before prepare().
  void update(Optimizer& optimizer, double max_norm);
  /// Makes every parameter's grad() the mean over replicas, after step(). All ranks call it. Throws Error if
  /// gradients are sharded. Throws Error with a GradScaler, because its scale may have changed by then.
  void gather_gradients();
  /// Moves the optimizer's states to their final memory. They are sharded, or shared by the ranks of a host
  /// if possible. step() does it if the caller does not.
  void place_states(Optimizer& optimizer);
  /// Updates the 16-bit copies on all ranks, after code other than a step has changed the values that ranks
  /// keep. All ranks call it.
  void refresh_copies() { values_->refresh_copies(); }
  /// Gathers the f32 values of a unit, `space.layout.units()[unit]`, on all ranks. The memory is valid until
  /// the next call. All ranks call it. It costs nothing if every rank keeps all values.
  Tensor gather_values(int unit) { return values_->gather(unit); }

  /// Returns the mean of the replicas' losses, one element on the parameters' device. The bits are equal on
  /// every rank. It is valid from the end of a step to the next backward().
  Tensor mean_loss() const;
  /// Returns the norm of the gradients of the last step(), before clipping, as f64.
  Tensor gradient_norm() const { return norm_.norm; }

  /// Sends this rank's request with every backward() from now on. `wanted` = false withdraws it.
  void vote(Vote what, bool wanted = true);
  /// Returns one element for each Vote, in order, that is above zero if a rank has asked. The bits are equal
  /// on every rank. They are valid as long as mean_loss().
  Tensor votes() const;
  /// Returns mean_loss() and then votes(), in one tensor.
  Tensor loss_and_votes() const;

  /// Returns whether backward() and finish() or update() may be recorded as a graph. One step must have run
  /// unrecorded before.
  bool is_capturable() const { return offload_ == Offload::none && reducer_->is_queued(); }
  /// Starts a recorded step by step.launch(). Its communication has the deadline and an entry in the flight
  /// record.
  void replay(const Graph& step);
  /// Throws the error that occurred in the background, if any. Call it once the GPU's results are read.
  void check() { reducer_->movement().check(); }

  /// Returns the GradScaler of the options, or null.
  const GradScaler* scaler() const { return options_.scaler; }
  /// Returns how gradients travel: "by NCCL", "through the host", ...
  const char* transport() const { return reducer_->movement().name(); }
  /// Returns the seconds of the last step in which this rank waited for communication.
  double exposed_seconds() const { return reducer_->exposed_seconds(); }
  /// Returns the number of gradient buffers of this rank, each as large as the model.
  int gradient_sets() const { return reducer_->plan().slots; }

 private:
  void hook(size_t parameter);
  void bind_leaf(size_t parameter);
  void make_step_summary();
  Tensor ordered_squares() const;
  void end_step(bool everything);
  void write_loss(const Tensor& loss, const Tensor& target, bool adds) const;
  void count_down(int bucket);
  void on_ready(size_t parameter);
  void expect_same_precision() const;
  /// Returns the number of micro-batches that are added before anything is sent.
  int micro_batches_per_leaf() const { return reducer_->cuts_gradients() ? 1 : options_.accumulate; }
  int owed() const { return static_cast<int>(micro_batches_.size()); }
  size_t rank() const { return static_cast<size_t>(communicator_->rank()); }

  ParameterSpace& space_;
  std::shared_ptr<Communicator> communicator_;
  Options options_;
  Offload offload_;  ///< none on a CPU
  Sharding sharding_;
  DType precision_;  ///< the model's precision when values and copies were sharded
  /// Sent between ranks in each step: the reserved elements, then the sums of squares of all blocks, those of
  /// rank 0 first.
  Tensor step_summary_;
  Tensor squares_by_owner_, own_squares_;     ///< in `step_summary_`
  Tensor squares_, place_of_block_;           ///< the squares in the order of the space; empty for one rank
  Tensor told_;                               ///< the averaged reserved elements of the last step
  std::unique_ptr<GradientReducer> reducer_;  ///< destroyed before step_summary_, whose memory it made
  std::unique_ptr<DistributedValues> values_;
  std::vector<MicroBatch> micro_batches_;
  std::optional<TransferPlan> summary_plan_;
  GradientNorm norm_;
  Tensor votes_;                      ///< this rank's request for each Vote, in order: 0 or 1
  std::vector<Tensor> gradients_;     ///< [slot]: the trainable elements
  std::vector<Tensor> reserved_;      ///< [slot]: the reserved elements
  std::vector<Tensor> known_states_;  ///< states that place_states() has placed
  bool updates_by_owners_ = false;    ///< in the last step each rank updated its owned ranges
  bool is_scattered_ = false;         ///< slot 0 holds the mean of this rank's owned ranges alone
  std::vector<bool> is_ready_;        ///< [parameter], in the running backward
  std::vector<int> missing_in_bucket_;
  int micro_batches_done_ = 0;
};

}  // namespace lockstep
