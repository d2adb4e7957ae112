// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"
#include "tensor/tensor.h"

namespace lockstep {

/// What one forward computes on: a replica's batch of a step, or a part of it. Inputs and targets
/// [samples, ...].
struct Batch {
  Tensor inputs;
  Tensor targets;
  int64_t replica = 0;
  int64_t first_sample = 0;  ///< within the global batch, which has batch_size a replica
  int64_t samples = 0;       ///< batch_size / parts, or fewer in the last step of an epoch
};

/// A part of a replica's batch, one of several micro-batches.
struct BatchSlice {
  int replica = 0;
  int index = 0;
};

/// Room for the field of so many samples: [samples, ...], contents undefined.
Tensor make_batch_memory(const SampleField& field, int64_t samples, const Stream& stream);

/// The samples of these indices, in that order, as one batch on a stream: those of an epoch of training, or
/// as they lie.
Batch collect(const Dataset& dataset, std::span<const int64_t> indices, const Stream& stream,
              std::optional<int64_t> epoch = {});

/// One global batch, as far as this rank executes it.
struct Step {
  int64_t index = 0;  ///< from 0, over the whole run
  int64_t epoch = 0;
  std::vector<Batch> batches = {};  ///< of this rank, in order
};

/// The global batches of a run, without end: in step k of an epoch, replica v takes the batch_size samples
/// from place k * batch_size of its sequence, as PyTorch's DataLoader over a DistributedSampler does. What a
/// step holds is a function of its index alone, so a run can go on anywhere and on any number of ranks.
class Loader {
 public:
  struct Options {
    int64_t replicas = 1;
    std::vector<int> local_replicas = {0};     ///< those that this rank executes, in order; or, unless empty,
    std::vector<BatchSlice> local_parts = {};  ///< of their batches, which are cut into
    int64_t parts = 1;                         ///< equal ones; what is left over is left out
    int64_t batch_size = 1;                    ///< samples a replica and step
    uint64_t seed = 0;
    bool shuffle = true;
    bool drop_last = false;
    bool whole_batches = false;  ///< leave out an epoch's last step if its batches would be short
    bool prefetch = true;        ///< a thread prepares the next step
  };

  /// Batches are made in the CPU's memory.
  Loader(std::shared_ptr<const Dataset> dataset, const Options& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The next step in order. Throws what the data set threw.
  Step next();
  /// Makes `step` the one that next() returns.
  void seek(int64_t step);

 private:
  Step prepare(int64_t index);
  Batch prepare(const BatchSlice& slice, int64_t begin, int64_t end, int64_t epoch);
  void work(const std::stop_token& stop);

  std::shared_ptr<const Dataset> dataset_;
  Options options_;
  Stream stream_;
  DistributedSampler sampler_;  // used by the thread that prepares
  int64_t steps_per_epoch_;
  std::shared_future<Step> prepared_;  // what next() returns, or throws until there is a seek()

  std::mutex mutex_;  // guards the task
  std::condition_variable_any changed_;
  std::packaged_task<Step()> task_;  // prepares it; none once it is begun
  std::jthread worker_;
};

}  // namespace lockstep
