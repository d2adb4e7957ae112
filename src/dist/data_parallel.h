// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/world.h"
#include "core/graph.h"
#include "dist/gradient_reducer.h"
#include "dist/unit_pool.h"
#include "parameters/grad_scaler.h"
#include "parameters/optimizer.h"

namespace lockstep {

/// What a rank may ask of all ranks. The request travels with the gradients, so that all know it after the
/// same step and it costs no message.
enum class Vote {
  stop,      ///< to leave after the step
  snapshot,  ///< to write a snapshot after the step
};

/// Trains one model on all ranks of a world. V logical replicas fix what a step computes; N ranks execute
/// them.
///
///     ParameterSpace space(model.parameters());
///     DataParallel ddp(space, world, {.replicas = 8});
///     AdamW optimizer(space, {});
///     for (const Batch& batch : my_batches)              // one per replica of this rank, in order
///       ddp.backward(loss_of(batch));                    // `accumulate` calls a replica
///     ddp.step(optimizer, learning_rate, max_norm);      // each rank updates what it owns
///
/// or, where gradients are wanted: `float loss = ddp.wait(); optimizer.step(learning_rate);` with equal bits.
/// On a GPU the host only queues; finish() in the place of wait() leaves it so. With a GradScaler (Options)
/// backward() and step() do all that is its; after wait() come scaler.step() and scaler.update().
///
/// Sharded (Options::shard), ranks cut what they keep, with equal bits again. Then the model's precision is
/// set before, batches are those of micro_batches(), and with full sharding begin_step() comes first:
///
///     ddp.begin_step();
///     for (const MicroBatch& part : ddp.micro_batches()) ddp.backward(loss_of(part));
///     ddp.step(optimizer, learning_rate, max_norm);
///
/// On a GPU what is kept may lie on the host (Options::offload): the same loop, and step() updates there.
class DataParallel {
 public:
  using Options = DataParallelOptions;

  /// Compares the parameters over all ranks (UserError naming the first that differs) and brings rank 0's
  /// values to all that keep them. Parameters are f32. Keeps a reference to the space.
  DataParallel(ParameterSpace& space, const World& world, Options options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// What this rank executes, in order: what backward() is called for. An empty one is run as the others are,
  /// on the data that it names, so that ranks stay together.
  const std::vector<MicroBatch>& micro_batches() const { return micro_batches_; }
  /// The replicas of which that are parts, in order.
  std::vector<int> replicas() const;
  int total_replicas() const { return options_.replicas; }
  const Sharding& sharding() const { return sharding_; }
  /// What lies on the host: none where that is where all ranks compute.
  Offload offload() const { return offload_; }

  /// Begins what all ranks do together, until the step ends: with full sharding, before any operation that
  /// reads parameters.
  void begin_step();
  /// The same for what is no step, an evaluation or a text: all ranks run the same operations while it lives.
  class Together {
   public:
    explicit Together(DataParallel& data_parallel) : data_parallel_(data_parallel) {
      data_parallel_.begin_step();
    }
    ~Together() { data_parallel_.forget_gathered(); }
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    DataParallel& data_parallel_;
  };

  /// The backward of the next micro-batch. Throws Error naming a parameter that the loss does not reach, and
  /// when it is called more often than this rank has micro-batches.
  void backward(const Tensor& loss);
  /// Ends the step: every parameter's grad() is the mean over replicas, for whatever is queued from now on.
  /// Throws Error if backward() is owed, and where gradients are cut.
  void finish();
  /// finish(), and the loss as a number: the host waits for it.
  float wait();

  /// Ends the step in the place of finish(), clipping and Optimizer::step(): each rank measures and updates
  /// what it owns, and values are gathered. Afterwards grad() throws until gather_gradients(), and the
  /// optimizer's states hold on this rank for what it owns: see gather_states(). `max_norm`: 0 is no
  /// clipping.
  void step(Optimizer& optimizer, double learning_rate, double max_norm = 0.0);
  /// The part of step() that can be recorded, after optimizer.prepare(learning_rate). With a GradScaler the
  /// optimizer has to count_on_device().
  void update(Optimizer& optimizer, double max_norm);
  /// Makes every parameter's grad() the mean over replicas, after step(). All ranks call it. Throws Error
  /// where gradients are cut, and where a GradScaler is, whose scale may have changed by then.
  void gather_gradients();
  /// Lets states lie where they stay: cut, or in memory that the ranks of a host share, if they do; else
  /// step() does it.
  void place_states(Optimizer& optimizer);
  /// Makes the optimizer's states whole on rank 0, which may then read them until the next step. All ranks
  /// call it; costs nothing where they are shared. Nothing where they are cut.
  void gather_states(Optimizer& optimizer);
  /// Brings copies in 16 bits up to date on all ranks, after something else than a step has changed the
  /// values that each keeps. All ranks call it.
  void refresh_copies();
  /// Brings the f32 values of a unit, `space.units()[unit]`, to all ranks, in memory that holds until the
  /// next call. All ranks call it; costs nothing where every rank keeps them.
  Tensor gather_values(int unit);

  /// The mean of the replicas' losses, one element beside the parameters, with equal bits on every rank.
  /// Holds from the end of a step to the next backward().
  Tensor mean_loss() const;
  /// The norm of the gradients of the last step(), before clipping: f64.
  Tensor gradient_norm() const { return norm_.norm; }

  /// This rank asks all ranks, in every backward() from now on, or (`wanted` is false) no longer does.
  void vote(Vote what, bool wanted = true);
  /// Above zero if a rank had asked, one element each in the order of Vote, with equal bits on every rank;
  /// read as mean_loss() is.
  Tensor votes() const;

  /// True if backward() and finish() or update() may be recorded as a graph, after one step that was not.
  bool is_capturable() const { return offload_ == Offload::none && reducer_->is_capturable(); }
  /// Starts a recorded step: step.launch(), with its communication under the deadline and in the flight
  /// record.
  void replay(const Graph& step);
  /// Throws what went wrong in the background since: to be called once the GPU's results are read.
  void check() { reducer_->check(); }

  /// That of the options, or null.
  const GradScaler* scaler() const { return options_.scaler; }
  /// How gradients travel: "by NCCL", "through the host", ...
  const char* transport() const { return reducer_->transport(); }
  /// Seconds of the last step in which communication was waited for.
  double exposed_seconds() const { return reducer_->exposed_seconds(); }
  /// Gradient buffers of this rank, each as large as the model.
  int gradient_sets() const { return reducer_->plan().slots; }

 private:
  void place_values();
  FlatBuffer make_buffer(const Ownership& ownership, DType dtype, bool on_host) const;
  void fill_masters(const FlatBuffer& masters) const;
  void broadcast(const Tensor& tensor) const;
  void gather(const FlatBuffer& buffer, const TransferPlan& plan) const;
  void gather_updates();
  void hook(size_t parameter);
  void bind_leaf(size_t parameter);
  void forget_gathered();
  void make_step_summary();
  void end_step(bool everything);
  void write_loss(const Tensor& loss, const Tensor& target, bool adds) const;
  void count_down(int bucket);
  void on_ready(size_t parameter);
  void expect_same_precision() const;
  /// Micro-batches that are added up before anything travels.
  int micro_batches_per_leaf() const { return reducer_->cuts_gradients() ? 1 : options_.accumulate; }
  int owed() const { return static_cast<int>(micro_batches_.size()); }
  size_t rank() const { return static_cast<size_t>(communicator_->rank()); }

  ParameterSpace& space_;
  std::shared_ptr<Communicator> communicator_;
  Options options_;
  Offload offload_;  ///< none on a CPU
  Sharding sharding_;
  DType precision_;      ///< for which ranks cut values and copies
  Tensor step_summary_;  ///< what ranks tell each other in a step: reserved elements, then
  Tensor squares_;       ///< the sums of squares of all blocks
  Tensor told_;          ///< the reserved elements of the last step
  std::unique_ptr<GradientReducer> reducer_;  ///< goes before the memory that it has made
  std::unique_ptr<UnitPool> units_;           ///< where reads are cut
  std::vector<MicroBatch> micro_batches_;
  std::optional<TransferPlan> summary_plan_, value_plan_, copies_plan_;
  GradientNorm norm_;
  Tensor votes_;                      ///< of this rank, in the order of Vote: 0 or 1
  std::vector<Tensor> gradients_;     ///< [slot]: the trainable elements
  std::vector<Tensor> reserved_;      ///< [slot]
  Tensor gathered_;                   ///< of gather_values()
  std::vector<Tensor> known_states_;  ///< that were placed
  bool states_are_shared_ = false;
  bool updates_by_owners_ = false;  ///< the last step did
  bool is_scattered_ = false;       ///< slot 0 holds what this rank owns
  std::vector<bool> is_ready_;      ///< parameters of the running backward
  std::vector<int> missing_in_bucket_;
  int micro_batches_done_ = 0;
};

}  // namespace lockstep
