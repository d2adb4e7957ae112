// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <vector>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/nccl_communicator.h"
#include "lockstep/comm/transport.h"
#include "lockstep/core/gpu.h"
#include "support/cuda.h"

namespace lockstep {

constexpr int most_ranks = 3;

#if defined(LOCKSTEP_EMULATED)
/// Emulated GPUs. NCCL needs one for each rank, and one test has four ranks.
inline const bool has_enough_gpus = ::setenv("LOCKSTEP_EMULATED_GPUS", "4", 1) == 0;
#endif

/// Runs body(communicator, stream) on one thread per rank, each with its own stream. Ranks share GPUs if
/// there are too few.
inline void run_gpu_ranks(int ranks, const std::function<void(Communicator&, const Stream&)>& body) {
  run_ranks(ranks, [&](Communicator& communicator) {
    const Stream stream = make_gpu_stream(communicator.rank() % count_gpus());
    set_current_stream(stream);
    body(communicator, stream);
  });
}

/// Returns the transports that this machine can run with `ranks` ranks. NCCL needs a GPU for each.
inline std::vector<Transport> transports_for(int ranks) {
  std::vector<Transport> possible = {Transport::staged};
  if (ranks == 1) possible.push_back(Transport::alone);
  if (nccl_version() > 0 && count_gpus() >= ranks) possible.push_back(Transport::nccl);
  return possible;
}

}  // namespace lockstep
