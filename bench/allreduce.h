// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/sharding.h"
#include "measure.h"

namespace lockstep {

struct AllReduceOptions {
  int64_t min_bytes = 1024;
  int64_t max_bytes = int64_t{256} << 20;
  int samples = 15;
  bool messages = false;
  bool append = false;
};

/// An all-reduce implementation that adds values in place on every rank.
struct AllReduceMethod {
  std::function<void(const std::vector<float>&)> write;
  std::function<std::vector<float>()> read;
  std::function<void()> reduce;          ///< starts one all-reduce
  std::function<void()> finish = [] {};  ///< waits for all calls of reduce()
  float scale = 1.0f;                    ///< factor that reduce() multiplies the sum by
};

/// Reduces `count` small integers and counts the wrong elements. Returns the largest count of all ranks. An
/// element is wrong if it differs from the exact sum times the method's scale.
int64_t wrong_values(const AllReduceMethod& method, int64_t count, Communicator& communicator);

/// Times one call of each method, in seconds. The methods alternate sample by sample. A sample is the slowest
/// rank's mean over several calls.
std::vector<Timing> times_of(const std::vector<AllReduceMethod>& methods, int64_t count, int samples,
                             Communicator& communicator);

/// Returns a plan with one bucket of `count` elements, a multiple of 16. The ranks own equal ranges of it.
BucketPlan one_bucket(int64_t count, int ranks);

/// Compares the tree with ncclAllReduce. Prints the columns of nccl-tests for both.
void bench_all_reduce_on_gpus(const AllReduceOptions& options, const World& world);

}  // namespace lockstep
