// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <gtest/gtest.h>

#include "dist/cuda/gpu_ranks.h"
#include "dist/reference_tree.h"
#include "lockstep/core/error.h"
#include "lockstep/core/graph.h"
#include "lockstep/dist/gradient_reducer.h"
#include "lockstep/kernels/fold.h"
#include "lockstep/kernels/trace.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

constexpr int64_t block = ParameterLayout::block;

/// Three units of one block each, in three buckets. The last rank owns all of them.
ParameterSpace three_blocks() {
  std::vector<NamedTensor> parameters;
  for (const char* name : {"a", "b", "c"}) parameters.push_back({name, zeros({block}).set_requires_grad()});
  return ParameterSpace(parameters);
}

/// Returns a reducer of gradients that are not sharded.
GradientReducer reducer_of(Communicator& communicator, const ParameterSpace& space,
                           DataParallelOptions options) {
  options.bucket_bytes = 0;
  const Sharding sharding(space, Shard::none, communicator.size(), 0);
  return {communicator.shared_from_this(), space.layout, sharding, options};
}

float gradient(int replica, int64_t i) {
  const double angle = 0.37 * static_cast<double>(i) + 1.7 * replica;
  return static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>((i * 5 + replica * 11) % 29) - 14));
}

/// Returns the mean of gradient() over the replicas, as rank 0 computes it.
std::vector<float> reduce(int ranks, const DataParallelOptions& options) {
  std::vector<float> mean(static_cast<size_t>(BucketPlan::reserved + 3 * block));
  run_gpu_ranks(ranks, [&](Communicator& communicator, const Stream& stream) {
    const ParameterSpace space = three_blocks();
    GradientReducer reducer = reducer_of(communicator, space, options);
    const std::vector<MicroBatch> mine = reducer.plan().micro_batches();
    for (size_t k = 0; k < mine.size(); ++k) {
      std::vector<float> leaf;
      for (size_t i = 0; i < mean.size(); ++i)
        leaf.push_back(gradient(mine[k].replica, static_cast<int64_t>(i)));
      const int slot = reducer.begin(static_cast<int>(k));
      copy_bytes(reducer.slot(slot), stream, leaf.data(), cpu_stream(),
                 static_cast<int64_t>(leaf.size()) * 4);
      for (int bucket = 2; bucket >= 0; --bucket) reducer.complete(bucket, static_cast<int>(k));
    }
    reducer.finish(true);
    if (communicator.rank() == 0)
      copy_bytes(mean.data(), cpu_stream(), reducer.slot(0), stream, static_cast<int64_t>(mean.size()) * 4);
  });
  return mean;
}

TEST(GpuReducer, NativeReductionIsNearTheMeanAndNotTheTree) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int replicas = 5;  // three ranks have 1, 2 and 2; the tree groups them differently
  for (const Transport transport : transports_for(most_ranks)) {
    const std::vector<float> mean =
        reduce(most_ranks, {.replicas = replicas, .reduction = Reduction::native, .transport = transport});
    int different = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      double sum = 0, magnitude = 0;
      std::vector<float> leaves;
      for (int v = 0; v < replicas; ++v) {
        leaves.push_back(gradient(v, static_cast<int64_t>(i)));
        sum += leaves.back();
        magnitude += std::abs(leaves.back());
      }
      // Four additions and one product round. Each error is at most half an ulp of the sum of magnitudes.
      ASSERT_NEAR(mean[i], sum / replicas, 6 * 0x1p-24 * magnitude / replicas + 1e-30) << name(transport);
      different += mean[i] != reference_tree_sum(leaves) * (1.0f / replicas);
    }
    EXPECT_GT(different, 10) << "these gradients cannot tell the orders apart";
  }
}

TEST(GpuReducer, OnlyWhatNeverWaitsOnTheHostIsCapturable) {
  LOCKSTEP_NEEDS_GPU();
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream& stream) {
    const ParameterSpace space = three_blocks();
    for (const Transport transport : transports_for(1)) {
      GradientReducer reducer = reducer_of(communicator, space, {.transport = transport});
      EXPECT_EQ(reducer.is_queued(), transport != Transport::staged);
      const auto step = [&] {
        reducer.begin(0);
        for (int bucket = 0; bucket < 3; ++bucket) reducer.complete(bucket, 0);
        reducer.finish(true);
      };
      if (transport == Transport::staged) {
        EXPECT_THROW(Graph(stream, step), Error);
      }
    }
    set_current_stream(cpu_stream());
    EXPECT_FALSE(reducer_of(communicator, three_blocks(), {}).is_queued());
  });
}

TEST(GpuReducer, OneGradientIsItsOwnMean) {
  LOCKSTEP_NEEDS_GPU();
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
    const ParameterSpace space = three_blocks();
    Trace& trace = Trace::current();
    trace.start();
    for (const Transport transport : transports_for(1))
      for (const Reduction reduction : {Reduction::tree, Reduction::native}) {
        GradientReducer reducer =
            reducer_of(communicator, space, {.reduction = reduction, .transport = transport});
        reducer.begin(0);
        for (int bucket = 0; bucket < 3; ++bucket) reducer.complete(bucket, 0);
        reducer.finish(true);
        EXPECT_FALSE(trace.totals().contains(Fold::name)) << name(transport);
      }
    trace.stop();
    EXPECT_TRUE(trace.totals().contains("fill")) << "nothing is traced";
  });
}

TEST(GpuReducer, AnUnfinishedBucketIsAnError) {
  LOCKSTEP_NEEDS_GPU();
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
    const ParameterSpace space = three_blocks();
    GradientReducer reducer = reducer_of(communicator, space, {});
    reducer.begin(0);
    reducer.complete(1, 0);
    EXPECT_THROW(reducer.finish(true), Error);
  });
}

TEST(Transport, FollowsFromTheSituation) {
  const auto choose = [](int ranks, int version, bool shares, bool may) {
    return detail::choose_transport(
        {.ranks = ranks, .nccl_version = version, .shares_gpu = shares, .nccl_may_share = may});
  };
  EXPECT_EQ(choose(1, 22809, false, false), Transport::alone);
  EXPECT_EQ(choose(1, 0, false, false), Transport::alone);
  EXPECT_EQ(choose(2, 22809, false, false), Transport::nccl);
  EXPECT_EQ(choose(2, 0, false, false), Transport::staged);
  EXPECT_EQ(choose(2, 22809, true, true), Transport::staged) << "NCCL 2.28 cannot share a GPU";
  EXPECT_EQ(choose(2, 23007, true, false), Transport::staged) << "sharing a GPU is not allowed";
  EXPECT_EQ(choose(2, 23007, true, true), Transport::nccl);
}

TEST(Transport, RanksWithTheSameGpuAreFound) {
  LOCKSTEP_NEEDS_GPU();
  run_ranks(2, [](Communicator& communicator) {
    EXPECT_TRUE(detail::gather_transport_facts(communicator, 0).shares_gpu);
    if (count_gpus() > 1) {
      EXPECT_FALSE(detail::gather_transport_facts(communicator, communicator.rank()).shares_gpu);
    }
  });
}

}  // namespace
}  // namespace lockstep
