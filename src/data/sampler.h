// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// Returns exactly the order of torch.randperm(count) on a CPU. The seed is the low 32 bits of `seed`. Throws
/// UserError from 2^32 / 20 samples on.
std::vector<uint32_t> random_permutation(int64_t count, uint64_t seed);

/// The samples that each replica sees in an epoch, bit-identical to torch.utils.data.DistributedSampler.
/// Replica r takes positions r, r + replicas, ... of one order. At its end the order starts again until all
/// replicas have equally many samples.
class DistributedSampler {
 public:
  struct Options {
    int64_t samples = 0;
    int64_t replicas = 1;
    bool shuffle = true;
    uint64_t seed = 0;
  };

  /// Starts in epoch 0. Throws UserError if there are no samples.
  explicit DistributedSampler(const Options& options);

  /// Starts an epoch: shuffles again by seed + epoch.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }
  int64_t samples_per_replica() const { return samples_per_replica_; }
  /// Returns the sample at a position of a replica's sequence in this epoch.
  int64_t index(int64_t replica, int64_t position) const;

 private:
  Options options_;
  int64_t samples_per_replica_ = 0;
  int64_t epoch_ = 0;
  std::vector<uint32_t> order_;  // empty without shuffling
};

}  // namespace lockstep
