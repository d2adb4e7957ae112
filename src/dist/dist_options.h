// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/dist/data_parallel_options.h"

namespace lockstep {

/// How the ranks of a run work together. --help gives meanings, ranges and units.
struct DistOptions {
  int replicas = 0;
  Reduction reduction = Reduction::tree;
  Shard shard = Shard::none;
  int group = 0;
  Offload offload = Offload::none;
  double bucket_mib = 25.0;
  double timeout_s = 300.0;
  int64_t audit_every = 0;

  /// Returns the options of a training that adds `accumulate` micro-batches to a replica's gradient.
  DataParallelOptions data_parallel(int64_t accumulate) const {
    return {.replicas = replicas,
            .accumulate = static_cast<int>(accumulate),
            .reduction = reduction,
            .shard = shard,
            .group = group,
            .offload = offload,
            .bucket_bytes = static_cast<int64_t>(bucket_mib * 1048576.0)};
  }
};

}  // namespace lockstep
