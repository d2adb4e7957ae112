// SPDX-License-Identifier: Apache-2.0
#include "lockstep/movement/sharding.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

const char* name(Shard shard) {
  constexpr const char* names[] = {"none", "optimizer", "gradients", "full", "hybrid"};
  return names[static_cast<size_t>(shard)];
}

const char* name(Offload offload) {
  constexpr const char* names[] = {"none", "optimizer", "all"};
  return names[static_cast<size_t>(offload)];
}

void detail::resolve_hybrid(Shard& stage, int& group, int ranks_of_host) {
  if (stage != Shard::hybrid) return;
  stage = Shard::full;
  if (group == 0) group = ranks_of_host;
}

Shard detail::stage_with(Shard stage, Offload offload) {
  if (offload == Offload::all) return Shard::full;
  return offload == Offload::optimizer ? std::max(stage, Shard::optimizer) : stage;
}

void detail::check_group(Shard stage, int ranks, int group, Offload offload) {
  if (ranks == 1) return;
  const std::string of_group = concat(option_name("group"), " = ", group), shard = option_name("shard");
  require(group >= 0 && (group == 0 || ranks % group == 0), of_group, " does not divide the ", ranks,
          " ranks: each group keeps the whole model, so all groups must have equal size");
  require(group == 0 || group == ranks || stage == Shard::full, of_group, " needs ", shard, " = full: with ",
          shard, " = ", name(stage), " every rank keeps all values");
  require(group == 0 || group == ranks || offload != Offload::all, of_group,
          " keeps values on the GPUs of each group, and ", option_name("offload"),
          " = all keeps them in host memory: remove one of them");
}

Sharding::Sharding(const ParameterSpace& space, Shard of_stage, int ranks, int group_size, Offload offload)
    : stage(detail::stage_with(ranks == 1 ? Shard::none : of_stage, offload)),
      group(ranks == 1 || group_size == 0 ? ranks : group_size) {
  detail::check_group(of_stage, ranks, group_size, offload);
  // Owned ranges nest. A rank reads the ranges of `parts` ranks, one of each group.
  const int parts = stage == Shard::full ? ranks / group : 1;
  const auto index_of = [&](int rank) {
    return static_cast<size_t>(parts == 1 ? rank : rank % group * parts + rank / group);
  };
  const Ownership trainable = space.layout.owned_ranges(ranks), all = space.layout.owned_ranges(ranks, true);
  const Ownership of_group = space.layout.owned_ranges(group, true);
  const bool has_copies = space.copies.exist();
  for (int rank = 0; rank < ranks; ++rank) {
    updates.push_back(trainable[index_of(rank)]);
    reads.push_back(stage == Shard::full ? of_group[static_cast<size_t>(rank % group)]
                                         : std::vector<Range>{{0, space.layout.elements()}});
    masters.push_back(has_copies && stage != Shard::none ? all[index_of(rank)] : reads.back());
  }
}

}  // namespace lockstep
