// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "dist/gradient_reducer.h"
#include "dist/world.h"
#include "tensor/tensor.h"

namespace lockstep {

/// Trains one model on all ranks of a world. V logical replicas fix what a step computes; N ranks execute
/// them.
///
///     for (const Batch& batch : my_batches)              // one per replica of this rank, in order
///       ddp.backward(loss_of(batch));                    // `accumulate` calls a replica
///     float loss = ddp.wait();                           // gradients are now the mean over all replicas
///     optimizer.step();
class DataParallel {
 public:
  struct Options {
    int replicas = 0;    ///< V; 0 is the number of ranks
    int accumulate = 1;  ///< micro-batches a replica, added left to right
    Reduction reduction = Reduction::tree;
    int64_t bucket_bytes = int64_t{25} << 20;
    bool overlap = false;
    bool shared_memory = true;
  };

  /// Compares the parameters over all ranks (UserError naming the first that differs), copies rank 0's values
  /// to all, and moves values and gradients into flat buffers. Parameters are fp32 leaves; a tensor that is
  /// listed twice counts once.
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
  /// Ends the step: every parameter's grad() is the mean over replicas. Returns the mean of the replicas'
  /// losses, equal bits on every rank. Throws Error if backward() is owed.
  float wait();

  /// Seconds of the last wait() that communication took.
  double exposed_seconds() const { return reducer_->exposed_seconds(); }
  /// Gradient buffers of this rank, each as large as the model.
  int gradient_sets() const { return reducer_->slots(); }

 private:
  void bind_gradients(int slot, bool accumulate);
  void on_ready(int parameter);

  std::shared_ptr<Communicator> communicator_;
  Options options_;
  std::vector<NamedTensor> parameters_;
  std::unique_ptr<BucketPlan> plan_;
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<std::vector<Tensor>> gradients_;  ///< [slot][parameter]
  std::vector<bool> is_ready_;                  ///< parameters of the running backward
  std::vector<int> missing_in_bucket_;
  std::vector<float> losses_;  ///< of this rank's replicas so far
  float micro_loss_ = 0.0f;
  int micro_batches_done_ = 0;
};

}  // namespace lockstep
