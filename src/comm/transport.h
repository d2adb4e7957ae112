// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/comm/communicator.h"

namespace lockstep {

/// The way in which the gradients of GPUs are exchanged.
enum class Transport {
  automatic,  ///< the choice of choose_transport()
  alone,      ///< one rank: nothing to send
  nccl,       ///< GPU to GPU, in the background
  staged,     ///< through host memory, like the gradients of CPUs
};

namespace detail {

/// The facts that decide the transport, equal on all ranks.
struct TransportFacts {
  int ranks = 1;
  int nccl_version = 0;         ///< such as 22809 for 2.28.9; 0 in a build without NCCL
  bool shares_gpu = false;      ///< two ranks use the same GPU
  bool nccl_may_share = false;  ///< NCCL_MULTI_RANK_GPU_ENABLE is set on every rank
};

/// Returns `alone` for one rank. Returns `staged` without NCCL, or if ranks share a GPU and NCCL may not.
/// NCCL 2.30 or newer may share a GPU if the user allows it. Returns `nccl` otherwise.
Transport choose_transport(const TransportFacts& facts);

/// Gathers the facts of all ranks; this one uses GPU `device`. All ranks call it.
TransportFacts gather_transport_facts(Communicator& communicator, int device);

}  // namespace detail

const char* name(Transport transport);

}  // namespace lockstep
