// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/sampler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// Every vector of numbers in this file was printed by PyTorch 2.15.

using Order = std::vector<uint32_t>;
using Sequences = std::vector<std::vector<int64_t>>;

Order first(const Order& order, size_t count) {
  return {order.begin(), order.begin() + static_cast<int64_t>(count)};
}

Sequences sequences(const DistributedSampler::Options& options, int64_t epoch = 0) {
  DistributedSampler sampler(options);
  sampler.set_epoch(epoch);
  Sequences all(static_cast<size_t>(options.replicas));
  for (int64_t replica = 0; replica < options.replicas; ++replica)
    for (int64_t position = 0; position < sampler.samples_per_replica(); ++position)
      all[static_cast<size_t>(replica)].push_back(sampler.index(replica, position));
  return all;
}

TEST(RandomPermutation, IsThatOfPyTorch) {
  EXPECT_EQ(random_permutation(10, 0), (Order{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(first(random_permutation(2048, 0), 8), (Order{684, 1316, 1939, 2013, 327, 1649, 913, 1241}));
  EXPECT_EQ(first(random_permutation(2048, 1), 8), (Order{1061, 1497, 1250, 1136, 707, 96, 697, 1023}));
  EXPECT_EQ(first(random_permutation(50076, 0), 8),
            (Order{8648, 34640, 25553, 7395, 26423, 23352, 33703, 3728}));
}

TEST(RandomPermutation, IsThatOfPyTorchToTheLastOfAMillion) {
  const Order order = random_permutation(1003790, 1337);
  EXPECT_EQ(first(order, 6), (Order{138825, 370936, 974230, 614620, 38959, 721203}));
  EXPECT_EQ((Order{order.end() - 3, order.end()}), (Order{303602, 341611, 708942}));
}

TEST(RandomPermutation, UsesTheLowHalfOfTheSeed) {
  const Order expected{6, 0, 3, 7, 8, 5, 1, 9, 2, 4};
  EXPECT_EQ(random_permutation(10, 3), expected);
  EXPECT_EQ(random_permutation(10, (uint64_t{1} << 32) + 3), expected);
}

TEST(RandomPermutation, OfNothingAndOfOne) {
  EXPECT_TRUE(random_permutation(0, 0).empty());
  EXPECT_EQ(random_permutation(1, 0), Order{0});
}

TEST(Permuted, IsAnOrderOfAnyNumber) {
  for (int64_t count = 1; count <= 300; ++count) {
    std::vector<bool> seen(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) seen.at(static_cast<size_t>(permuted(i, count, 7))) = true;
    ASSERT_EQ(std::ranges::count(seen, true), count);
  }
  for (const int64_t count : {int64_t{10'000'000'000}, (int64_t{1} << 62) - 1}) {
    std::vector<int64_t> first;
    for (int64_t i = 0; i < 10'000; ++i) first.push_back(permuted(i, count, 7));
    std::ranges::sort(first);
    EXPECT_TRUE(std::ranges::adjacent_find(first) == first.end());
    EXPECT_GE(first.front(), 0);
    EXPECT_LT(first.back(), count);
    // The places are even: a tenth of the samples lies in each tenth, within five standard deviations.
    for (int64_t part = 0; part < 10; ++part) {
      const auto in_part = std::ranges::count_if(first, [&](int64_t i) { return i / (count / 10) == part; });
      EXPECT_NEAR(static_cast<double>(in_part), 1000, 150) << part;
    }
  }
  EXPECT_NE(permuted(0, 1'000'000, 7), permuted(0, 1'000'000, 8));
}

// A data set with 1e10 tokens and a short block has more samples than PyTorch's order covers.
TEST(DistributedSampler, ShufflesMoreSamplesThan32BitsCount) {
  DistributedSampler sampler({.samples = 9'000'000'001, .replicas = 4, .seed = 5});
  EXPECT_EQ(sampler.samples_per_replica(), 2'250'000'001);
  const auto first_of = [&](int64_t replica) {
    return std::vector{sampler.index(replica, 0), sampler.index(replica, 2'250'000'000)};
  };
  EXPECT_EQ(first_of(0), (std::vector<int64_t>{5715058184, 8615060343}));
  EXPECT_EQ(first_of(3)[1], sampler.index(2, 0)) << "the order starts again at its end";
  sampler.set_epoch(1);
  EXPECT_EQ(first_of(0), (std::vector<int64_t>{8670737783, 7606161023}));
}

TEST(DistributedSampler, KeepsTheOrderOfPyTorchWhereItEnds) {
  EXPECT_EQ(most_permuted, 214748363);
  EXPECT_THROW(random_permutation(most_permuted + 1, 0), Error);
}

TEST(DistributedSampler, DealsOutRoundRobinAndPadsFromTheStart) {
  EXPECT_EQ(sequences({.samples = 10, .replicas = 3}), (Sequences{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}));
}

TEST(DistributedSampler, RepeatsTheOrderIfReplicasOutnumberSamples) {
  EXPECT_EQ(sequences({.samples = 3, .replicas = 8}), (Sequences{{2}, {0}, {1}, {2}, {0}, {1}, {2}, {0}}));
  EXPECT_EQ(sequences({.samples = 2, .replicas = 7, .shuffle = false}),
            (Sequences{{0}, {1}, {0}, {1}, {0}, {1}, {0}}));
}

TEST(DistributedSampler, ShufflesBySeedPlusEpoch) {
  const Sequences expected{{10, 0, 9}, {4, 7, 2}, {3, 1, 5}, {8, 6, 10}};
  EXPECT_EQ(sequences({.samples = 11, .replicas = 4, .seed = 7}, 5), expected);
  EXPECT_EQ(sequences({.samples = 11, .replicas = 4, .seed = 12}), expected);
  EXPECT_NE(sequences({.samples = 11, .replicas = 4, .seed = 7}, 6), expected);
}

TEST(DistributedSampler, IsThatOfPyTorchForTheTutorialsDataSet) {
  DistributedSampler sampler({.samples = 2048, .replicas = 8, .seed = 1});
  sampler.set_epoch(2);
  ASSERT_EQ(sampler.samples_per_replica(), 256);
  const std::vector<int64_t> expected{404, 347, 1483, 1750, 1141, 410, 1187, 668};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(sampler.index(5, static_cast<int64_t>(i)), expected[i]);
}

TEST(DistributedSampler, ComesBackToAnEpoch) {
  DistributedSampler sampler({.samples = 100, .replicas = 1});
  const int64_t before = sampler.index(0, 17);
  sampler.set_epoch(1);
  const int64_t other = sampler.index(0, 17);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.index(0, 17), before);
  EXPECT_NE(other, before);
}

TEST(DistributedSampler, KeepsTheOrderWithoutShuffling) {
  EXPECT_EQ(sequences({.samples = 10, .replicas = 4, .shuffle = false}, 3),
            (Sequences{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}}));
}

TEST(DistributedSampler, RefusesWhatIsNotThere) {
  EXPECT_THROW(DistributedSampler({.samples = 0, .replicas = 1}), UserError);
  const DistributedSampler sampler({.samples = 4, .replicas = 2});
  EXPECT_THROW(sampler.index(2, 0), Error);
  EXPECT_THROW(sampler.index(0, 2), Error);
}

}  // namespace
}  // namespace lockstep
