// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/loader.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <set>
#include <tuple>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// A data set whose sample i has the input {i, 10 i} and the target {-i}.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  SampleField input() const override { return {{2}, DType::i32}; }
  SampleField target() const override { return {{1}, DType::f32}; }
  void fetch(int64_t index, void* input, void* target) const override {
    static_cast<int32_t*>(input)[0] = static_cast<int32_t>(index);
    static_cast<int32_t*>(input)[1] = static_cast<int32_t>(10 * index);
    *static_cast<float*>(target) = -static_cast<float>(index);
  }

 private:
  int64_t size_;
};

/// A data set that fails for one sample and is slow for some.
class Unreliable : public Numbers {
 public:
  Unreliable(int64_t size, int64_t broken) : Numbers(size), broken_(broken) {}
  void fetch(int64_t index, void* input, void* target) const override {
    if (index % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    require(index != broken_, "sample ", index, " is broken");
    Numbers::fetch(index, input, target);
  }

 private:
  int64_t broken_;
};

std::shared_ptr<const Dataset> numbers(int64_t size) { return std::make_shared<Numbers>(size); }

/// A batch as (step, epoch, replica, first sample, indices of its samples).
using Record = std::tuple<int64_t, int64_t, int64_t, int64_t, std::vector<int64_t>>;

std::vector<Record> record(const Step& step) {
  std::vector<Record> records;
  for (const Batch& batch : step.batches) {
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < batch.samples; ++i) samples.push_back(batch.inputs.data<int32_t>()[2 * i]);
    records.emplace_back(step.index, step.epoch, batch.replica, batch.first_sample, samples);
  }
  return records;
}

std::vector<Record> take(Loader& loader, int64_t steps) {
  std::vector<Record> all;
  for (int64_t i = 0; i < steps; ++i)
    for (Record& batch : record(loader.next())) all.push_back(std::move(batch));
  return all;
}

TEST(Loader, BatchesFollowTheSampler) {
  Loader loader(numbers(50), {.replicas = 3, .local_replicas = {0, 1, 2}, .batch_size = 4, .seed = 9});
  ASSERT_EQ(loader.steps_per_epoch(), 5);  // 17 samples per replica: 4 + 4 + 4 + 4 + 1
  DistributedSampler sampler({.samples = 50, .replicas = 3, .seed = 9});
  for (int64_t index = 0; index < 12; ++index) {
    const Step step = loader.next();
    EXPECT_EQ(step.index, index);
    EXPECT_EQ(step.epoch, index / 5);
    sampler.set_epoch(index / 5);
    ASSERT_EQ(step.batches.size(), 3u);
    for (const Batch& batch : step.batches) {
      EXPECT_EQ(batch.samples, index % 5 == 4 ? 1 : 4);
      EXPECT_EQ(batch.first_sample, batch.replica * 4);
      ASSERT_EQ(batch.inputs.shape(), Shape({batch.samples, 2}));
      ASSERT_EQ(batch.targets.shape(), Shape({batch.samples, 1}));
      for (int64_t i = 0; i < batch.samples; ++i) {
        const int64_t expected = sampler.index(batch.replica, index % 5 * 4 + i);
        EXPECT_EQ(batch.inputs.data<int32_t>()[2 * i], expected);
        EXPECT_EQ(batch.inputs.data<int32_t>()[2 * i + 1], 10 * expected);
        EXPECT_EQ(batch.targets.data<float>()[i], static_cast<float>(-expected));
      }
    }
  }
}

TEST(Loader, RanksTogetherSeeWhatOneRankSees) {
  const auto options = [](const std::vector<int>& replicas) {
    return Loader::Options{.replicas = 7, .local_replicas = replicas, .batch_size = 3, .seed = 2};
  };
  Loader alone(numbers(100), options({0, 1, 2, 3, 4, 5, 6}));
  Loader ranks[] = {
      {numbers(100), options({0, 3, 6})}, {numbers(100), options({1, 4})}, {numbers(100), options({2, 5})}};
  for (int step = 0; step < 12; ++step) {
    std::vector<Record> together;
    for (Loader& rank : ranks)
      for (Record& batch : record(rank.next())) together.push_back(std::move(batch));
    std::ranges::sort(together, {}, [](const Record& batch) { return std::get<2>(batch); });
    EXPECT_EQ(together, record(alone.next()));
  }
}

TEST(Loader, PrefetchingChangesNothing) {
  Loader::Options options{.replicas = 2, .local_replicas = {0, 1}, .batch_size = 5, .seed = 4};
  Loader prefetching(std::make_shared<Unreliable>(64, -1), options);
  options.prefetch = false;
  Loader plain(numbers(64), options);
  EXPECT_EQ(take(prefetching, 20), take(plain, 20));
}

TEST(Loader, SeeksToAnyStep) {
  for (const bool prefetch : {false, true}) {
    const Loader::Options options{
        .replicas = 2, .local_replicas = {0, 1}, .batch_size = 4, .seed = 1, .prefetch = prefetch};
    Loader straight(numbers(30), options);
    std::vector<std::vector<Record>> steps;
    for (int i = 0; i < 17; ++i) steps.push_back(record(straight.next()));
    Loader loader(numbers(30), options);
    for (const int64_t target : {13, 3, 16, 0, 0, 7, 8}) {
      loader.seek(target);
      EXPECT_EQ(record(loader.next()), steps[static_cast<size_t>(target)]) << "prefetch " << prefetch;
      if (target < 16) {
        EXPECT_EQ(record(loader.next()), steps[static_cast<size_t>(target) + 1]);
      }
    }
  }
}

TEST(Loader, SeeksWhileTheThreadIsBusy) {
  const Loader::Options options{.replicas = 1, .batch_size = 8, .seed = 3};
  Loader loader(std::make_shared<Unreliable>(1000, -1), options);
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t target = i * 37 % 300;
    loader.seek(target);
    loader.seek(target + 1);
    EXPECT_EQ(loader.next().index, target + 1);
  }
}

TEST(Loader, ShufflesEveryEpochAndMeetsEverySampleInEach) {
  Loader loader(numbers(24), {.replicas = 2, .local_replicas = {0, 1}, .batch_size = 4});
  std::vector<std::vector<Record>> epochs{take(loader, 3), take(loader, 3)};
  for (const std::vector<Record>& epoch : epochs) {
    std::set<int64_t> seen;
    for (const Record& batch : epoch) seen.insert(std::get<4>(batch).begin(), std::get<4>(batch).end());
    EXPECT_EQ(seen.size(), 24u);
  }
  EXPECT_NE(std::get<4>(epochs[0][0]), std::get<4>(epochs[1][0]));
}

TEST(Loader, KeepsOrderAndSkipsAShortStepIfAsked) {
  Loader loader(
      numbers(11),
      {.replicas = 2, .local_replicas = {0, 1}, .batch_size = 5, .shuffle = false, .whole_batches = true});
  EXPECT_EQ(loader.steps_per_epoch(), 1);
  EXPECT_EQ(take(loader, 1),
            (std::vector<Record>{{0, 0, 0, 0, {0, 2, 4, 6, 8}}, {0, 0, 1, 5, {1, 3, 5, 7, 9}}}));
}

TEST(Loader, ThrowsWhatTheDataSetThrew) {
  for (const bool prefetch : {false, true}) {
    Loader loader(std::make_shared<Unreliable>(20, 13),
                  {.batch_size = 4, .shuffle = false, .prefetch = prefetch});
    EXPECT_EQ(take(loader, 3).size(), 3u);
    EXPECT_THROW(loader.next(), UserError);
    EXPECT_THROW(loader.next(), UserError);
    loader.seek(4);
    EXPECT_EQ(loader.next().index, 4);
  }
}

TEST(Loader, EndsWithoutBeingUsed) {
  for (int i = 0; i < 50; ++i) Loader loader(std::make_shared<Unreliable>(100, -1), {.batch_size = 10});
  Loader idle(numbers(10), {.replicas = 2, .local_replicas = {}});
  EXPECT_TRUE(idle.next().batches.empty());
}

/// A data set whose sample i has i % `kinds` targets that count.
class Unequal : public Numbers {
 public:
  Unequal(int64_t size, int64_t kinds) : Numbers(size), kinds_(kinds) {}
  std::optional<int64_t> counted_targets(int64_t index) const override { return index % kinds_; }

 private:
  int64_t kinds_;
};

// Every rank computes the number alone, also in the short step at the end of an epoch.
TEST(Loader, CountsTheTargetsOfAllReplicas) {
  const auto dataset = std::make_shared<Unequal>(50, 7);
  for (const int64_t parts : {1, 2}) {
    const Loader::Options all{
        .replicas = 3, .local_replicas = {0, 1, 2}, .parts = parts, .batch_size = 4, .seed = 9};
    Loader::Options of_one = all;
    of_one.local_replicas = {1};
    Loader loader(dataset, all), of_rank(dataset, of_one);
    for (int64_t index = 0; index < 6; ++index) {
      const Step step = loader.next();
      int64_t targets = 0;
      for (const Record& batch : record(step))
        for (const int64_t sample : std::get<4>(batch)) targets += sample % 7;
      const double inverse =
          targets == 0 ? 0.0 : static_cast<double>(3 * parts) / static_cast<double>(targets);
      EXPECT_EQ(step.inverse_count, inverse) << index << ", " << parts;
      EXPECT_EQ(of_rank.next().inverse_count, inverse) << index << ", " << parts;
    }
  }
}

TEST(Loader, CountsNothingIfSamplesAreEqualOrHaveNoTarget) {
  EXPECT_EQ(Loader(numbers(50), {.replicas = 3, .batch_size = 4}).next().inverse_count, std::nullopt);
  EXPECT_EQ(Loader(std::make_shared<Unequal>(50, 1), {.replicas = 3}).next().inverse_count, 0.0);
}

/// A data set whose samples all have `targets` targets that count.
class EquallyMany : public Numbers {
 public:
  EquallyMany(int64_t size, int64_t targets) : Numbers(size), targets_(targets) {}
  std::optional<int64_t> counted_targets(int64_t) const override { return targets_; }

 private:
  int64_t targets_;
};

// The factor relative to the mean of a micro-batch is then exactly 1, so the bits are those of that mean.
TEST(Loader, EqualCountsHaveTheInverseOfOne) {
  for (int64_t targets = 1; targets < 60; ++targets)
    for (const int64_t replicas : {1, 3, 7, 64})
      for (const int64_t parts : {1, 3, 5}) {
        const auto dataset = std::make_shared<EquallyMany>(1000, targets);
        Loader loader(dataset, {.replicas = replicas,
                                .parts = parts,
                                .batch_size = 3 * parts,
                                .shuffle = false,
                                .prefetch = false});
        EXPECT_EQ(loader.next().inverse_count, 1.0 / static_cast<double>(3 * targets));
      }
}

TEST(Loader, RefusesWrongOptions) {
  EXPECT_THROW(Loader(numbers(10), {.replicas = 2, .local_replicas = {1, 2}}), Error);
  EXPECT_THROW(Loader(numbers(10), {.batch_size = 0}), UserError);
  EXPECT_THROW(Loader(numbers(10), {}).seek(-1), Error);
}

}  // namespace
}  // namespace lockstep
