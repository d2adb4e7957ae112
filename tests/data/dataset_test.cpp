// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

struct Sample {
  Ids input;
  Ids target;
};

Sample fetch(const Dataset& dataset, int64_t index) {
  Sample sample{.input = Ids(static_cast<size_t>(dataset.input().shape.elements())),
                .target = Ids(static_cast<size_t>(dataset.target().shape.elements()))};
  dataset.fetch(index, sample.input.data(), sample.target.data());
  return sample;
}

Ids counting(int32_t count) {
  Ids tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// Returns every token that a window of the data set has as input or target.
std::set<int32_t> tokens_of(const Dataset& dataset) {
  std::set<int32_t> seen;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Sample sample = fetch(dataset, i);
    seen.insert(sample.input.begin(), sample.input.end());
    seen.insert(sample.target.begin(), sample.target.end());
  }
  return seen;
}

std::string message_of_split(int32_t tokens, int64_t block_size, double train_split) {
  try {
    split_tokens(counting(tokens), block_size, train_split);
  } catch (const UserError& failure) {
    return failure.what();
  }
  return "accepted";
}

TEST(TokenWindows, TargetsAreTheNextTokensAndAShortTailIsLeftOut) {
  EXPECT_EQ(TokenWindows(counting(12), 4).size(), 2);
  const TokenWindows windows(counting(13), 4);
  EXPECT_EQ(windows.size(), 3);
  EXPECT_EQ(windows.input().shape, Shape({4}));
  EXPECT_EQ(windows.input().dtype, DType::i32);
  EXPECT_EQ(fetch(windows, 1).input, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(fetch(windows, 2).target, (Ids{9, 10, 11, 12}));
}

TEST(TokenWindows, AnEpochShowsAsManyTokensAsThereAreAtEverOtherPlaces) {
  for (const int32_t block : {1, 2, 7, 64}) {
    const int32_t count = 50 * block + (block > 3 ? 4 : 1);
    const TokenWindows windows(counting(count), block, 5);
    ASSERT_EQ(windows.size(), 50);
    std::map<int32_t, int> seen;
    std::vector<int32_t> begins;
    Ids input(static_cast<size_t>(block)), target(input);
    for (int64_t epoch = 0; epoch < 400; ++epoch)
      for (int64_t i = 0; i < windows.size(); ++i) {
        windows.fetch_in_epoch(epoch, i, input.data(), target.data());
        ASSERT_GE(input[0], i * block);
        ASSERT_LT(input[0], (i + 1) * block);
        ASSERT_EQ(target.back(), input.back() + 1);
        begins.push_back(input[0]);
        for (const int32_t token : input) ++seen[token];
      }
    // Each token appears once per epoch on average, except near the two ends.
    for (int32_t token = block; token < 48 * block; ++token) EXPECT_NEAR(seen[token], 400, 90) << token;
    const TokenWindows again(counting(count), block, 5), other(counting(count), block, 6);
    int same = 0;
    for (int64_t i = 0; i < windows.size(); ++i) {
      again.fetch_in_epoch(0, i, input.data(), target.data());
      EXPECT_EQ(input[0], begins[static_cast<size_t>(i)]);
      other.fetch_in_epoch(0, i, input.data(), target.data());
      same += input[0] == begins[static_cast<size_t>(i)];
    }
    EXPECT_LE(same, block == 1 ? 50 : 40) << "another seed must give other windows";
  }
}

TEST(TokenWindows, RefusesWhatIsNotThere) {
  const TokenWindows windows(counting(10), 4);
  EXPECT_THROW(fetch(windows, 2), Error);
  EXPECT_THROW(fetch(windows, -1), Error);
  EXPECT_THROW(TokenWindows(counting(4), 4), Error);
}

TEST(SplitTokens, NoTokenIsOnBothSides) {
  const Split<TokenWindows> split = split_tokens(counting(200), 7, 0.9);
  const std::set<int32_t> train = tokens_of(*split.train);
  const std::set<int32_t> validation = tokens_of(*split.validation);
  EXPECT_EQ(train.size(), 176u);  // 25 windows of 7, and the last target
  EXPECT_EQ(*train.rbegin(), 175);
  EXPECT_EQ(*validation.begin(), 180);
  EXPECT_EQ(validation.size(), 15u);  // two windows of 7, and the last target; a tail of 5 is dropped
}

TEST(SplitTokens, ValidationTargetsEachTokenOnce) {
  const Split<TokenWindows> split = split_tokens(counting(1000), 8, 0.5);
  std::multiset<int32_t> targets;
  for (int64_t i = 0; i < split.validation->size(); ++i) {
    const Sample sample = fetch(*split.validation, i);
    targets.insert(sample.target.begin(), sample.target.end());
  }
  EXPECT_EQ(targets.size(), 496u);
  for (int32_t token : targets) EXPECT_EQ(targets.count(token), 1u);
}

TEST(SplitTokens, SplitsShakespeareWhereOthersDo) {
  const Split<TokenWindows> split = split_tokens(Ids(1115394), 64, 0.9);
  EXPECT_EQ(split.train->size(), (1003854 - 1) / 64);
  EXPECT_EQ(split.validation->size(), (111540 - 1) / 64);
}

TEST(SplitTokens, SaysWhichPartIsTooShort) {
  const std::string message = message_of_split(100, 10, 0.9);
  EXPECT_EQ(message.find("block_size = 10 is too long: the validation part of the corpus has 10 tokens"), 0u)
      << message;
  EXPECT_NE(message_of_split(20, 64, 0.9).find("training part of the corpus has 18 tokens"),
            std::string::npos);
  EXPECT_NE(message_of_split(0, 64, 0.9).find("has 0 tokens"), std::string::npos);
  EXPECT_EQ(message_of_split(110, 10, 0.9), "accepted");
  EXPECT_EQ(message_of_split(11, 10, 1.0), "accepted") << "without validation";
}

TEST(SplitTokens, NamesTheKeyThatIsWrong) {
  for (const double split : {0.0, 1.01, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_EQ(message_of_split(100, 4, split).find("train_split = "), 0u) << split;
  EXPECT_EQ(message_of_split(100, 0, 0.5).find("block_size = 0"), 0u);
}

TEST(RandomTokens, AreAFunctionOfSeedAndIndex) {
  const RandomTokens tokens({.samples = 100, .vocabulary_size = 65, .block_size = 33, .seed = 5});
  const RandomTokens others({.samples = 100, .vocabulary_size = 65, .block_size = 33, .seed = 6});
  const Sample sample = fetch(tokens, 41);
  EXPECT_EQ(fetch(tokens, 41).input, sample.input);
  EXPECT_NE(fetch(tokens, 42).input, sample.input);
  EXPECT_NE(fetch(others, 41).input, sample.input);
  EXPECT_TRUE(std::equal(sample.target.begin(), sample.target.end() - 1, sample.input.begin() + 1));
  EXPECT_THROW(fetch(tokens, 100), Error);
}

TEST(RandomTokens, FillTheVocabularyEvenly) {
  const RandomTokens tokens({.samples = 1000, .vocabulary_size = 16, .block_size = 64, .seed = 1});
  std::vector<int> counts(16);
  for (int64_t i = 0; i < tokens.size(); ++i)
    for (int32_t token : fetch(tokens, i).input) ++counts.at(static_cast<size_t>(token));
  // 64000 draws give 4000 per token, with a standard deviation of 61. The bound is six deviations.
  for (int count : counts) EXPECT_NEAR(count, 4000, 6 * 61);
}

TEST(SyntheticRegression, IsTheSameEveryTimeAndUniform) {
  const SyntheticRegression dataset;
  const SyntheticRegression built_again;
  EXPECT_EQ(dataset.size(), 2048);
  EXPECT_EQ(dataset.input().shape, Shape({20}));
  EXPECT_EQ(dataset.target().dtype, DType::f32);
  double sum = 0;
  std::set<float> values;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    std::vector<float> sample(21);
    std::vector<float> again(21);
    dataset.fetch(i, sample.data(), &sample[20]);
    built_again.fetch(i, again.data(), &again[20]);
    ASSERT_EQ(sample, again);
    for (float value : sample) {
      ASSERT_TRUE(value >= 0 && value < 1);
      sum += value;
    }
    values.insert(sample.begin(), sample.end());
  }
  const double count = 2048 * 21;
  // A uniform variable has a standard deviation of 0.2887.
  EXPECT_NEAR(sum / count, 0.5, 6 * 0.2887 / std::sqrt(count));
  EXPECT_GT(static_cast<double>(values.size()), 0.99 * count);
}

}  // namespace
}  // namespace lockstep
