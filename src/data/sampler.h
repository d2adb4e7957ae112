// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// The largest count of random_permutation(). From this number on PyTorch draws 64 bits at a time.
inline constexpr int64_t most_permuted = UINT32_MAX / 20 - 1;

/// Returns exactly the order of torch.randperm(count) on a CPU. The seed is the low 32 bits of `seed`. Throws
/// Error for more than most_permuted.
std::vector<uint32_t> random_permutation(int64_t count, uint64_t seed);

/// Returns element `index` of another random order of [0, count), for any count below 2^62. It needs no
/// memory: a Feistel network with Philox as its function is a permutation of some 2^k numbers. Results from
/// `count` on are permuted again.
int64_t permuted(int64_t index, int64_t count, uint64_t seed);

/// The samples that each replica sees in an epoch, bit-identical to torch.utils.data.DistributedSampler. Data
/// sets of more than most_permuted samples have the order of permuted(). Replica r takes positions r,
/// r + replicas, ... of one order. At its end the order starts again until all replicas have equally many
/// samples.
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
  std::vector<uint32_t> order_;  // empty without shuffling and for more than most_permuted samples
};

}  // namespace lockstep
