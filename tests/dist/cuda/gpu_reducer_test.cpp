// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/event.h"
#include "core/graph.h"
#include "dist/cuda/gpu_ranks.h"
#include "dist/gradient_reducer.h"
#include "dist/reference_tree.h"

namespace lockstep {
namespace {

constexpr int64_t parameter_sizes[] = {300, 1, 33, 1500, 16, 500};

struct Setting {
  int replicas = 1;
  int ranks = 1;
  int64_t bucket_bytes = 4096;
  Transport transport = Transport::automatic;
  Reduction reduction = Reduction::tree;
  bool is_recorded = false;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.replicas << " replicas on " << setting.ranks << " ranks, buckets of "
             << setting.bucket_bytes << " bytes, " << name(setting.transport)
             << (setting.is_recorded ? ", recorded" : "");
}

/// What replica v's backward leaves at element i in a step: a wide range of magnitudes, so that orders of
/// addition show.
float gradient(int step, int replica, int64_t i) {
  const double angle = 0.37 * static_cast<double>(i) + 1.7 * replica + 0.1 * step;
  return static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>((i * 5 + replica * 11) % 29) - 14));
}

/// A rank with its gradients of a step in GPU memory, and the backward that copies them into the slots.
class Rank {
 public:
  Rank(Communicator& communicator, const Stream& stream, const BucketPlan& plan, const Setting& setting)
      : plan_(plan),
        stream_(stream),
        reducer_(make_gradient_reducer(
            communicator.shared_from_this(), plan,
            {.replicas = setting.replicas, .reduction = setting.reduction, .transport = setting.transport},
            stream)),
        inputs_(allocate(reducer_->replicas().size() * plan.elements * 4, stream)) {}

  GradientReducer& reducer() { return *reducer_; }

  void load(int step) {
    std::vector<float> values;
    for (int v = reducer_->replicas().begin; v < reducer_->replicas().end; ++v)
      for (int64_t i = 0; i < plan_.elements; ++i) values.push_back(gradient(step, v, i));
    copy_bytes(inputs_.get(), stream_, values.data(), cpu_stream(), static_cast<int64_t>(values.size()) * 4);
  }
  /// Buckets fill in another order than they are reduced in.
  void run() {
    for (int k = 0; k < reducer_->replicas().size(); ++k)
      for (size_t b = plan_.buckets.size(); b-- > 0;) {
        const Bucket& bucket = plan_.buckets[b];
        const int64_t slot_at = (reducer_->slot_of(k) * plan_.elements + bucket.begin) * 4;
        const int64_t input_at = (k * plan_.elements + bucket.begin) * 4;
        copy_bytes_in_background(reducer_->storage()->data.get() + slot_at, inputs_.get() + input_at,
                                 (bucket.end - bucket.begin) * 4, stream_);
        reducer_->complete(static_cast<int>(b), k);
      }
    reducer_->finish();
  }
  std::vector<float> mean() const {
    std::vector<float> values(static_cast<size_t>(plan_.elements));
    copy_bytes(values.data(), cpu_stream(), reducer_->storage()->data.get(), stream_, plan_.elements * 4);
    reducer_->check();
    return values;
  }

 private:
  BucketPlan plan_;
  Stream stream_;
  std::unique_ptr<GradientReducer> reducer_;
  std::shared_ptr<std::byte> inputs_;
};

/// [step][element] of three steps; equal on all ranks. The first step of a recorded run is not.
std::vector<std::vector<float>> reduce(const Setting& setting) {
  const BucketPlan plan(parameter_sizes, setting.bucket_bytes);
  std::vector<std::vector<std::vector<float>>> of_rank(static_cast<size_t>(setting.ranks));
  run_gpu_ranks(setting.ranks, [&](Communicator& communicator, const Stream& stream) {
    Rank rank(communicator, stream, plan, setting);
    std::unique_ptr<Graph> graph;
    for (int step = 0; step < 3; ++step) {
      rank.load(step);
      if (step == 1 && setting.is_recorded) graph = std::make_unique<Graph>(stream, [&] { rank.run(); });
      if (graph)
        rank.reducer().replay([&] { graph->launch(); });
      else
        rank.run();
      of_rank[static_cast<size_t>(communicator.rank())].push_back(rank.mean());
    }
  });
  for (const auto& steps : of_rank) EXPECT_EQ(steps, of_rank[0]) << "the ranks differ with " << setting;
  return of_rank[0];
}

void expect_the_tree(const Setting& setting) {
  const auto steps = reduce(setting);
  ASSERT_EQ(steps.size(), 3u);
  for (int step = 0; step < 3; ++step)
    for (size_t i = 0; i < steps[static_cast<size_t>(step)].size(); ++i) {
      std::vector<float> leaves;
      for (int v = 0; v < setting.replicas; ++v) leaves.push_back(gradient(step, v, static_cast<int64_t>(i)));
      ASSERT_EQ(steps[static_cast<size_t>(step)][i],
                reference_tree_sum(leaves) * (1.0f / static_cast<float>(setting.replicas)))
          << "element " << i << " of step " << step << " with " << setting;
    }
}

class GpuReducer : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPU(); }
};
INSTANTIATE_TEST_SUITE_P(Replicas, GpuReducer, testing::Values(1, 3, 4, 7));

TEST_P(GpuReducer, BitsAreTheTreesByEveryTransport) {
  for (int ranks = 1; ranks <= std::min(GetParam(), most_ranks); ++ranks)
    for (const Transport transport : transports_for(ranks))
      for (const int64_t bucket_bytes : {int64_t{256}, int64_t{4000}, int64_t{1} << 20})
        expect_the_tree({GetParam(), ranks, bucket_bytes, transport});
}

TEST_P(GpuReducer, ARecordedReductionGivesTheSameBitsInEveryOrderThatItsEventsAllow) {
  for_each_schedule([] {
    for (int ranks = 1; ranks <= std::min(GetParam(), most_ranks); ++ranks)
      for (const Transport transport : transports_for(ranks))
        if (transport != Transport::staged)
          expect_the_tree({.replicas = GetParam(),
                           .ranks = ranks,
                           .bucket_bytes = 1500,
                           .transport = transport,
                           .is_recorded = true});
  });
}

TEST(GpuReducerOptions, NativeReductionIsNearTheMeanAndNotTheTree) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int replicas = 5;  // three ranks bring 1, 2 and 2, which is not how the tree groups them
  for (const Transport transport : transports_for(most_ranks)) {
    const Setting setting{
        .replicas = replicas, .ranks = most_ranks, .transport = transport, .reduction = Reduction::native};
    const std::vector<float> mean = reduce(setting)[0];
    int different = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      double sum = 0, magnitude = 0;
      std::vector<float> leaves;
      for (int v = 0; v < replicas; ++v) {
        leaves.push_back(gradient(0, v, static_cast<int64_t>(i)));
        sum += leaves.back();
        magnitude += std::abs(leaves.back());
      }
      // Four additions and one product, each rounding by half an ulp of at most the sum of magnitudes.
      ASSERT_NEAR(mean[i], sum / replicas, 6 * 0x1p-24 * magnitude / replicas + 1e-30) << setting;
      different += mean[i] != reference_tree_sum(leaves) * (1.0f / replicas);
    }
    EXPECT_GT(different, 10) << "these gradients cannot tell the orders apart";
  }
}

TEST(GpuReducerOptions, OnlyWhatNeverWaitsOnTheHostIsCapturable) {
  LOCKSTEP_NEEDS_GPU();
  const BucketPlan plan(parameter_sizes, 4096);
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream& stream) {
    for (const Transport transport : transports_for(1)) {
      const auto reducer =
          make_gradient_reducer(communicator.shared_from_this(), plan, {.transport = transport}, stream);
      EXPECT_EQ(reducer->is_capturable(), transport != Transport::staged);
    }
    const auto on_host = make_gradient_reducer(communicator.shared_from_this(), plan, {}, cpu_stream());
    EXPECT_FALSE(on_host->is_capturable());
    Rank staged(communicator, stream, plan, {.transport = Transport::staged});
    staged.load(0);
    EXPECT_THROW(Graph(stream, [&] { staged.run(); }), Error);
  });
}

TEST(GpuReducerOptions, AnUnfinishedBucketIsAnError) {
  LOCKSTEP_NEEDS_GPU();
  const BucketPlan plan(parameter_sizes, 256);
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream& stream) {
    const auto reducer = make_gradient_reducer(communicator.shared_from_this(), plan, {}, stream);
    reducer->complete(1, 0);
    EXPECT_THROW(reducer->finish(), Error);
  });
}

TEST(Transport, FollowsFromTheSituation) {
  const auto choose = [](int ranks, int version, bool shares, bool may) {
    return choose_transport(
        {.ranks = ranks, .nccl_version = version, .shares_gpu = shares, .nccl_may_share = may});
  };
  EXPECT_EQ(choose(1, 22809, false, false), Transport::alone);
  EXPECT_EQ(choose(1, 0, false, false), Transport::alone);
  EXPECT_EQ(choose(2, 22809, false, false), Transport::nccl);
  EXPECT_EQ(choose(2, 0, false, false), Transport::staged);
  EXPECT_EQ(choose(2, 22809, true, true), Transport::staged) << "2.28 cannot share";
  EXPECT_EQ(choose(2, 23007, true, false), Transport::staged) << "nobody allowed it";
  EXPECT_EQ(choose(2, 23007, true, true), Transport::nccl);
}

TEST(Transport, RanksWithTheSameGpuAreFound) {
  LOCKSTEP_NEEDS_GPU();
  run_ranks(2, [](Communicator& communicator) {
    EXPECT_TRUE(gather_transport_facts(communicator, 0).shares_gpu);
    if (count_gpus() > 1) EXPECT_FALSE(gather_transport_facts(communicator, communicator.rank()).shares_gpu);
  });
}

}  // namespace
}  // namespace lockstep
