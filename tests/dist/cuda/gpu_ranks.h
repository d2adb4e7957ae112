// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <vector>

#include "comm/local_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/transport.h"
#include "core/gpu.h"
#include "support/cuda.h"

namespace lockstep {

constexpr int most_ranks = 3;

#if defined(LOCKSTEP_EMULATED)
/// As many GPUs as ranks, of which one test has one more, so that NCCL has one for each.
inline const bool has_enough_gpus = ::setenv("LOCKSTEP_EMULATED_GPUS", "4", 1) == 0;
#endif

/// Runs body(communicator, stream) by threads, each with a queue of its own; they share GPUs if there are too
/// few.
inline void run_gpu_ranks(int ranks, const std::function<void(Communicator&, const Stream&)>& body) {
  run_ranks(ranks, [&](Communicator& communicator) {
    const Stream stream = make_gpu_stream(communicator.rank() % count_gpus());
    set_current_stream(stream);
    body(communicator, stream);
  });
}

/// What can be tried with that many ranks here: NCCL wants a GPU for each.
inline std::vector<Transport> transports_for(int ranks) {
  std::vector<Transport> possible = {Transport::staged};
  if (ranks == 1) possible.push_back(Transport::alone);
  if (nccl_version() > 0 && count_gpus() >= ranks) possible.push_back(Transport::nccl);
  return possible;
}

}  // namespace lockstep
