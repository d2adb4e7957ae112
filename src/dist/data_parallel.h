// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/graph.h"
#include "dist/gradient_reducer.h"
#include "dist/world.h"
#include "tensor/tensor.h"

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
///     for (const Batch& batch : my_batches)              // one per replica of this rank, in order
///       ddp.backward(loss_of(batch));                    // `accumulate` calls a replica
///     float loss = ddp.wait();                           // gradients are now the mean over all replicas
///     optimizer.step();
///
/// On a GPU the host only queues: finish() in the place of wait() leaves it so, and mean_loss() can be read
/// later.
class DataParallel {
 public:
  struct Options {
    int replicas = 0;    ///< V; 0 is the number of ranks
    int accumulate = 1;  ///< micro-batches a replica, added left to right
    Reduction reduction = Reduction::tree;
    int64_t bucket_bytes = int64_t{25} << 20;
    bool overlap = false;
    bool shared_memory = true;
    Transport transport = Transport::automatic;
  };

  /// Compares the parameters over all ranks (UserError naming the first that differs), copies rank 0's values
  /// to all, and moves values and gradients into flat buffers. Parameters are fp32 leaves on one stream; a
  /// tensor that is listed twice counts once. Whoever keeps copies in 16 bits renews them afterwards.
  DataParallel(const std::vector<NamedTensor>& parameters, const World& world, Options options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// The replicas that this rank executes.
  ReplicaRange replicas() const { return reducer_->replicas(); }
  int total_replicas() const { return options_.replicas; }

  /// The backward of the next micro-batch. Throws Error naming a parameter that the loss does not reach, and
  /// when it is called more often than this rank has micro-batches.
  void backward(const Tensor& loss);
  /// Ends the step: every parameter's grad() is the mean over replicas, for whatever is queued from now on.
  /// Throws Error if backward() is owed.
  void finish();
  /// The mean of the replicas' losses, one element beside the parameters, with equal bits on every rank.
  /// Holds from finish() to the next backward().
  Tensor mean_loss() const;
  /// finish(), and the loss as a number: the host waits for it.
  float wait();

  /// This rank asks all ranks, in every backward() from now on, or (`wanted` is false) no longer does.
  void vote(Vote what, bool wanted = true);
  /// Above zero if a rank had asked, one element each in the order of Vote, with equal bits on every rank;
  /// read as mean_loss() is.
  Tensor votes() const;

  /// True if backward() and finish() may be recorded as a graph, after one step that was not.
  bool is_capturable() const { return reducer_->is_capturable(); }
  /// Starts a recorded step: step.launch(), with its communication under the deadline and in the flight
  /// record.
  void replay(const Graph& step);
  /// Throws what went wrong in the background since: to be called once the GPU's results are read.
  void check() { reducer_->check(); }

  /// How gradients travel: "by NCCL", "through the host", ...
  const char* transport() const { return reducer_->transport(); }
  /// Seconds of the last finish() that communication took.
  double exposed_seconds() const { return reducer_->exposed_seconds(); }
  /// Gradient buffers of this rank, each as large as the model.
  int gradient_sets() const { return reducer_->slots(); }

 private:
  void move_values(const Stream& stream);
  void bind_gradients(int slot, bool accumulate);
  View reserved(int slot, int64_t element, const Shape& shape) const;
  void write_loss(const Tensor& loss, int slot, int micro) const;
  void count_down(int bucket);
  int owed() const { return replicas().size() * options_.accumulate; }
  void on_ready(int parameter);

  std::shared_ptr<Communicator> communicator_;
  Options options_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<BucketPlan> plan_;
  std::unique_ptr<GradientReducer> reducer_;
  Tensor votes_;                                ///< of this rank, in the order of Vote: 0 or 1
  std::vector<std::vector<Tensor>> gradients_;  ///< [slot][parameter]
  std::vector<bool> is_ready_;                  ///< parameters of the running backward
  std::vector<int> missing_in_bucket_;
  int micro_batches_done_ = 0;
};

}  // namespace lockstep
