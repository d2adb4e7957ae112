// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// The input of one forward: a replica's batch of a step or one of its micro-batches. Inputs and targets are
/// [samples, ...].
struct Batch {
  Tensor inputs;
  Tensor targets;
  int64_t replica = 0;
  int64_t first_sample = 0;  ///< index in the global batch, which has batch_size samples per replica
  int64_t samples = 0;       ///< batch_size / parts, or fewer in the last step of an epoch
};

/// A micro-batch of a replica's batch. `index` counts the micro-batches from 0.
struct BatchSlice {
  int replica = 0;
  int index = 0;
};

/// Allocates memory for this field of `samples` samples: [samples, ...]. The contents are undefined.
Tensor make_batch_memory(const SampleField& field, int64_t samples, const Stream& stream);

/// Returns the samples of `indices` in that order as one batch on a stream. With `epoch` they are the
/// training samples of that epoch. Without it they are those of fetch().
Batch collect(const Dataset& dataset, std::span<const int64_t> indices, const Stream& stream,
              std::optional<int64_t> epoch = {});

/// The part of one global batch that this rank executes.
struct Step {
  int64_t index = 0;  ///< from 0, over the whole run
  int64_t epoch = 0;
  /// 1 / the average number of counted targets in the micro-batches of all replicas; 0 if none counts. Sums
  /// of losses times this number have the mean over all these targets as their average. Empty if every sample
  /// has equally many targets.
  std::optional<double> inverse_count = {};
  std::vector<Batch> batches = {};        ///< batches to execute, in order
  std::optional<Batch> extra_batch = {};  ///< the micro-batch that Loader::Options::extra names
};

/// The endless sequence of a run's global batches. In step k of an epoch replica v takes batch_size samples
/// from position k * batch_size of its sequence. PyTorch's DataLoader over a DistributedSampler does the
/// same. A step is a function of its index alone, so a run can resume at any step and on any number of ranks.
class Loader {
 public:
  struct Options {
    int64_t replicas = 1;
    std::vector<int> local_replicas = {0};     ///< replicas to execute, in order
    std::vector<BatchSlice> local_parts = {};  ///< if not empty, the micro-batches to execute instead
    int64_t parts = 1;                         ///< micro-batches of equal size per batch; the rest is skipped
    int64_t batch_size = 1;                    ///< samples per replica and step
    uint64_t seed = 0;
    bool shuffle = true;
    bool whole_batches = false;  ///< skip an epoch's last step if its batches would be short
    bool prefetch = true;        ///< a thread prepares the next step
    /// Names one more micro-batch to load in a step, which may be another rank's. Called with the step's
    /// index, also by the thread that prepares steps.
    std::function<std::optional<BatchSlice>(int64_t step)> extra = {};
  };

  /// Starts at step 0. Batches are in host memory.
  Loader(std::shared_ptr<const Dataset> dataset, const Options& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Returns the next step in order. Throws the exceptions of the data set.
  Step next();
  /// Makes `step` the one that next() returns.
  void seek(int64_t step);

 private:
  Step prepare(int64_t index);
  Batch prepare(const BatchSlice& slice, int64_t begin, int64_t end, int64_t epoch);
  std::optional<double> inverse_count(int64_t begin, int64_t end) const;
  void work(const std::stop_token& stop);

  std::shared_ptr<const Dataset> dataset_;
  Options options_;
  Stream stream_;
  DistributedSampler sampler_;  // used by the thread that prepares steps
  int64_t steps_per_epoch_;
  std::shared_future<Step> prepared_;  // result of next(); an exception repeats until seek()

  std::mutex mutex_;  // guards the task
  std::condition_variable_any changed_;
  std::packaged_task<Step()> task_;  // computes prepared_; empty once it has begun
  std::jthread worker_;
};

}  // namespace lockstep
