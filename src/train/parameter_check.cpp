// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/parameter_check.h"

#include <map>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/dist/parameters_hash.h"

namespace lockstep {
namespace {

/// Throws Error unless all ranks have the same hash.
void require_same(const std::vector<uint64_t>& hashes, int64_t step) {
  std::map<uint64_t, std::vector<size_t>> ranks;
  for (size_t rank = 0; rank < hashes.size(); ++rank) ranks[hashes[rank]].push_back(rank);
  if (ranks.size() == 1) return;
  std::vector<std::string> named;
  uint64_t of_most = 0;
  for (const auto& [hash, with_it] : ranks)
    if (2 * with_it.size() > hashes.size()) of_most = hash;
  for (size_t rank = 0; rank < hashes.size(); ++rank)
    if (of_most == 0 || hashes[rank] != of_most)
      named.push_back(concat("rank ", rank, " (", hash_text(hashes[rank]), ")"));
  const std::string others = of_most == 0 ? "" : concat(" from the others (", hash_text(of_most), ")");
  throw Error(concat("after step ", step, " the parameters of ", joined(named), " differ", others,
                     ": a processor, memory or library there computes wrongly; no snapshot of this step is "
                     "written"));
}

}  // namespace

uint64_t ParameterCheck::compare(int64_t step) {
  const Clock::time_point begin = Clock::now();
  const uint64_t mine = parameters_hash(space_, data_parallel_);
  seconds_ = seconds_since(begin);
  require_same(world_.communicator().all_gather_value(mine), step);
  return mine;
}

void ParameterCheck::compare_if_cheap(int64_t step) {
  const bool is_cheap = seconds_ <= 0.01 * seconds_since(last_);
  last_ = Clock::now();
  if (world_.size() == 1) return;
  if (world_.communicator().broadcast_value(is_cheap, 0)) compare(step);
}

}  // namespace lockstep
