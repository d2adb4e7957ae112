// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/communicator.h"

namespace lockstep {

/// How the gradients of GPUs meet.
enum class Transport {
  automatic,  ///< what choose_transport() says
  alone,      ///< one rank: nothing to send
  nccl,       ///< GPU to GPU, in the background
  staged,     ///< through the memory of the host, as gradients of CPUs travel
};

/// What decides the transport; the same on all ranks.
struct TransportFacts {
  int ranks = 1;
  int nccl_version = 0;         ///< of the library, as 22809 for 2.28.9; 0 in a build without it
  bool shares_gpu = false;      ///< two ranks use the same GPU
  bool nccl_may_share = false;  ///< NCCL_MULTI_RANK_GPU_ENABLE is set on every rank
};

/// alone for one rank; staged without NCCL, and where ranks share a GPU, unless NCCL is 2.30 or newer and its
/// user allows that; else nccl.
Transport choose_transport(const TransportFacts& facts);

/// The facts for ranks of which this one uses GPU `device`. All ranks call it.
TransportFacts gather_transport_facts(Communicator& communicator, int device);

const char* name(Transport transport);

}  // namespace lockstep
