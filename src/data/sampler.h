// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// torch.randperm(count) on the CPU, bit for bit, seeded with the low 32 bits of `seed`. Throws UserError
/// from 2^32 / 20 samples up.
std::vector<uint32_t> random_permutation(int64_t count, uint64_t seed);

/// Which samples each replica sees in an epoch, bit for bit those of torch.utils.data.DistributedSampler:
/// replica r takes places r, r + replicas, ... of one order, which starts over at its end until all replicas
/// have equally many (or, with drop_last, is cut).
class DistributedSampler {
 public:
  struct Options {
    int64_t samples = 0;
    int64_t replicas = 1;
    bool shuffle = true;
    uint64_t seed = 0;
    bool drop_last = false;
  };

  /// Starts in epoch 0. Throws UserError if there is no sample for some replica.
  explicit DistributedSampler(const Options& options);

  /// Shuffles anew, by seed + epoch.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }
  int64_t samples_per_replica() const { return samples_per_replica_; }
  /// The sample at a position of a replica's sequence in this epoch.
  int64_t index(int64_t replica, int64_t position) const;

 private:
  Options options_;
  int64_t samples_per_replica_ = 0;
  int64_t epoch_ = 0;
  std::vector<uint32_t> order_;  // empty without shuffling
};

}  // namespace lockstep
