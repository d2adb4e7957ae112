// SPDX-License-Identifier: Apache-2.0
#include "data/sampler.h"

#include <numeric>
#include <random>
#include <utility>

#include "core/error.h"

namespace lockstep {

std::vector<uint32_t> random_permutation(int64_t count, uint64_t seed) {
  // From this number on PyTorch draws 64 bits at a time.
  constexpr int64_t limit = UINT32_MAX / 20;
  require(count < limit, "a data set of ", count, " samples cannot be shuffled: fewer than ", limit,
          " are needed");
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 generator(static_cast<uint32_t>(seed));
  for (uint32_t i = 0; i + 1 < order.size(); ++i) {
    const uint32_t left = static_cast<uint32_t>(order.size()) - i;
    std::swap(order[i], order[i + generator() % left]);
  }
  return order;
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
  if (!options_.shuffle || is_current) return;
  order_ = random_permutation(options_.samples, options_.seed + static_cast<uint64_t>(epoch));
}

int64_t DistributedSampler::index(int64_t replica, int64_t position) const {
  expect(replica >= 0 && replica < options_.replicas, "replica ", replica, " of ", options_.replicas);
  expect(position >= 0 && position < samples_per_replica_, "position ", position, " of ",
         samples_per_replica_);
  const int64_t place = (position * options_.replicas + replica) % options_.samples;
  return order_.empty() ? place : order_[static_cast<size_t>(place)];
}

}  // namespace lockstep
