// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/transport.h"

#include <set>

#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/gpu.h"

namespace lockstep {

Transport detail::choose_transport(const TransportFacts& facts) {
  constexpr int first_that_may_share = 23000;
  if (facts.ranks == 1) return Transport::alone;
  const bool can_share = facts.nccl_may_share && facts.nccl_version >= first_that_may_share;
  const bool has_nccl = facts.nccl_version > 0;
  return has_nccl && (!facts.shares_gpu || can_share) ? Transport::nccl : Transport::staged;
}

detail::TransportFacts detail::gather_transport_facts(Communicator& communicator, int device) {
  TransportFacts facts{.ranks = communicator.size(), .nccl_version = nccl_version()};
  facts.nccl_may_share =
      communicator.on_every_rank(number_from_environment("NCCL_MULTI_RANK_GPU_ENABLE") == 1);
  std::set<std::string> gpus;
  for (const std::string& gpu : communicator.all_gather_text(gpu_properties(device).uuid))
    facts.shares_gpu |= !gpus.insert(gpu).second;
  return facts;
}

const char* name(Transport transport) {
  constexpr const char* names[] = {"automatic", "alone", "nccl", "staged"};
  return names[static_cast<size_t>(transport)];
}

}  // namespace lockstep
