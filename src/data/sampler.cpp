// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/sampler.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/kernels/random.h"

namespace lockstep {

std::vector<uint32_t> random_permutation(int64_t count, uint64_t seed) {
  expect(count <= most_permuted, "an order of ", count, " samples");
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 generator(static_cast<uint32_t>(seed));
  for (uint32_t i = 0; i + 1 < order.size(); ++i) {
    const uint32_t left = static_cast<uint32_t>(order.size()) - i;
    std::swap(order[i], order[i + generator() % left]);
  }
  return order;
}

int64_t permuted(int64_t index, int64_t count, uint64_t seed) {
  expect(0 <= index && index < count && count < int64_t{1} << 62, "element ", index, " of ", count);
  constexpr uint32_t rounds = 8;              // even, so that the halves are back where they were
  constexpr uint32_t own_word = 0x6f726465u;  // keeps these draws apart from others of the seed
  const int bits = std::max(2, static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1))));
  const int low_bits = bits / 2;
  auto value = static_cast<uint64_t>(index);
  do {
    int right_bits = low_bits;
    uint64_t left = value >> right_bits, right = value & ((uint64_t{1} << right_bits) - 1);
    for (uint32_t round = 0; round < rounds; ++round) {
      const uint64_t mask = (uint64_t{1} << (bits - right_bits)) - 1;
      const uint64_t mixed =
          left ^ (philox(seed, {static_cast<uint32_t>(right), round, 0, own_word})[0] & mask);
      left = std::exchange(right, mixed);
      right_bits = bits - right_bits;
    }
    value = left << right_bits | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

DistributedSampler::DistributedSampler(const Options& options) : options_(options) {
  expect(options.replicas > 0, "a sampler for ", options.replicas, " replicas");
  require(options.samples > 0, "the data set has no samples");
  samples_per_replica_ = (options.samples - 1) / options.replicas + 1;
  set_epoch(0);
}

void DistributedSampler::set_epoch(int64_t epoch) {
  expect(epoch >= 0, "epoch ", epoch);
  const bool is_current = epoch == epoch_ && !order_.empty();
  epoch_ = epoch;
  if (!options_.shuffle || is_current || options_.samples > most_permuted) return;
  order_ = {};  // two orders at a time could exceed the memory
  order_ = random_permutation(options_.samples, options_.seed + static_cast<uint64_t>(epoch));
}

int64_t DistributedSampler::index(int64_t replica, int64_t position) const {
  expect(replica >= 0 && replica < options_.replicas, "replica ", replica, " of ", options_.replicas);
  expect(position >= 0 && position < samples_per_replica_, "position ", position, " of ",
         samples_per_replica_);
  const int64_t place = (position * options_.replicas + replica) % options_.samples;
  if (!options_.shuffle) return place;
  if (order_.empty()) return permuted(place, options_.samples, options_.seed + static_cast<uint64_t>(epoch_));
  return order_[static_cast<size_t>(place)];
}

}  // namespace lockstep
