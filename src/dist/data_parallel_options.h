// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/comm/transport.h"
#include "lockstep/movement/sharding.h"

namespace lockstep {

/// The component that decides in which order replicas are added.
enum class Reduction {
  tree,    ///< this engine: the same bits at any number of ranks
  native,  ///< the transport: bits depend on ranks and transport
};

class GradScaler;

/// Options of DataParallel. Comments mark the options that change the bits.
struct DataParallelOptions {
  int replicas = 0;    ///< V, which defines what a step computes; 0: the number of ranks
  int accumulate = 1;  ///< micro-batches per replica, added left to right; changes the bits
  Reduction reduction = Reduction::tree;  ///< changes the bits
  Shard shard = Shard::none;              ///< data that is divided between ranks
  int group = 0;                          ///< number of ranks that together keep all values; 0: all ranks
  Offload offload = Offload::none;        ///< GPU: data that is stored in host memory
  int64_t bucket_bytes = int64_t{25} << 20;
  bool overlap = false;       ///< CPU: reduce on a thread of its own while the last backward still runs
  bool shared_memory = true;  ///< CPU: read other ranks' gradients in place if ranks share a host
  Transport transport = Transport::automatic;  ///< GPU
  GradScaler* scaler = nullptr;                ///< of the same space, or null; its scale changes the bits
};

}  // namespace lockstep
