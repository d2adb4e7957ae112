// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/world.h"
#include "dist/bucket_plan.h"
#include "measure.h"

namespace lockstep {

struct AllReduceOptions {
  int64_t min_bytes = 1024;
  int64_t max_bytes = int64_t{256} << 20;
  int samples = 15;
  bool messages = false;
  bool append = false;
};

/// One way to add up values, in place on every rank.
struct AllReduceMethod {
  std::function<void(const std::vector<float>&)> write;
  std::function<std::vector<float>()> read;
  std::function<void()> reduce;          ///< once
  std::function<void()> finish = [] {};  ///< returns when all calls of reduce() are done
  float scale = 1.0f;                    ///< of the sum that it leaves behind
};

/// How many of `count` elements differ, on any rank, from the exact sum of small integers times the method's
/// scale.
int64_t wrong_values(const AllReduceMethod& method, int64_t count, Communicator& communicator);

/// Seconds of one call of each method: samples alternate, each the slowest rank's mean over some calls.
std::vector<Timing> times_of(const std::vector<AllReduceMethod>& methods, int64_t count, int samples,
                             Communicator& communicator);

/// `count` elements, a multiple of 16, in one bucket, of which ranks own equal parts.
BucketPlan one_bucket(int64_t count, int ranks);

/// The tree beside ncclAllReduce: nccl-tests' columns for both.
void bench_all_reduce_on_gpus(const AllReduceOptions& options, const World& world);

}  // namespace lockstep
