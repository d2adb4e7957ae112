// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/memory_plan.h"

#include <gtest/gtest.h>

#include "lockstep/core/text.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/layers.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/plan/memory_advice.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/train/language_task.h"
#include "support/config_support.h"
#include "support/counting_pool.h"
#include "support/temporary_directory.h"
#include "support/tiny_training.h"

namespace lockstep {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

std::map<std::string, int64_t> peaks(const std::vector<MemoryUse>& uses) {
  std::map<std::string, int64_t> all;
  for (const MemoryUse& use : uses) all[use.label] = use.peak_bytes;
  return all;
}

/// Returns the configuration of a small GPT on the built-in text.
Job small(const std::vector<const char*>& words, const std::string& folder) {
  const std::string log = "log.dir=" + folder;
  std::vector<const char*> all = {"data.dataset=sample", "data.block_size=24", "model.n_layer=3",
                                  "model.n_head=2",      "model.n_embd=32",    "train.steps=3",
                                  "train.batch_size=4",  "train.device=cpu",   "data.train_split=0.995",
                                  "train.eval_every=2",  "dist.replicas=1",    "train.sample_every=3",
                                  "train.threads=1"};
  all.push_back(log.c_str());
  all.insert(all.end(), words.begin(), words.end());
  return resolve(load_words(all), World::alone());
}

void run_on(MemoryPool& pool, const Job& job) {
  const StreamModeScope own({.memory = &pool});
  const World world = World::alone();
  const LanguageData data = language_data(job, world, nullptr);
  const std::unique_ptr<LanguageModel> model = make_model(job, data.vocabulary_size);
  const QuietStderr quiet;
  EXPECT_EQ(train(job, world, LanguageTask(job, *model, data)), 0);
}

MemoryPlan plan_of(const Job& job) {
  const World world = World::alone();
  const LanguageData data = language_data(job, world, nullptr);
  return language_planner(job, world, data).plan(job);
}

TEST(MemoryPlan, IsToTheByteWhatARunTakes) {
  const std::vector<std::vector<const char*>> settings = {
      {},
      {"train.accumulate=2"},
      {"train.recompute=attention"},
      {"train.recompute=block", "model.dropout=0.1"},
      {"train.recompute=segments=2", "train.accumulate=4"},
      {"train.logit_rows=10", "model.tie_weights=false"},
      {"train.precision=bf16", "model.bias=false"},
      {"train.precision=fp16"},
      {"train.sample_every=0", "train.eval_every=-1", "snapshot.path=none"},
      // The optimizer takes blocks that activations have left.
      {"train.batch_size=3", "model.n_layer=1", "data.block_size=70"}};
  for (const auto& words : settings) {
    const TemporaryDirectory directory;
    const Job job = small(words, directory / "run");
    CountingPool pool;
    run_on(pool, job);
    const MemoryPlan plan = plan_of(job);
    for (const MemoryRow& row : plan.rows) EXPECT_GE(row.bytes, 0.0) << row.name;
    auto planned = peaks(plan.uses), run = peaks(pool.table());
    // A thread prepares the next batch. The run may reach its peak before that batch exists. It may also
    // never hold two batches at once.
    const int64_t batch = planned.at("batches") / 2;
    const int64_t early = planned.extract("total").mapped() - run.extract("total").mapped();
    EXPECT_TRUE(early >= 0 && early <= batch) << early;
    const int64_t late = planned.extract("batches").mapped() - run.extract("batches").mapped();
    EXPECT_TRUE(late >= 0 && late <= batch) << late;
    EXPECT_EQ(planned, run) << joined(std::vector<std::string>(words.begin(), words.end()));
    EXPECT_NEAR(plan.blocks, static_cast<double>(pool.most()), static_cast<double>(early) + 1024)
        << "including cached blocks, but without some scalars";
  }
}

TEST(MemoryPlan, AShortBatchAtTheEndOfAnEpochTakesNoMemoryOfItsOwn) {
  const TemporaryDirectory directory;
  const std::string dataset = "data.dataset=" + (directory / "text.txt");
  write_text(directory / "text.txt", sample_text(40));
  const auto most = [&](const char* steps, const char* name) {
    const Job job = small({dataset.c_str(), steps, "train.batch_size=28", "train.sample_every=0",
                           "train.eval_every=-1", "data.train_split=0.9", "snapshot.path=none"},
                          directory / name);
    CountingPool pool;
    run_on(pool, job);
    const MemoryPlan plan = plan_of(job);
    EXPECT_NEAR(plan.blocks, static_cast<double>(pool.most()), static_cast<double>(pool.most()) / 50);
    return pool.most();
  };
  const int64_t of_whole_batches = most("train.steps=1", "one");
  EXPECT_LE(most("train.steps=7", "many"), of_whole_batches + of_whole_batches / 50);
}

/// A communicator of ranks that cannot read each other's memory.
class Apart final : public LocalCommunicator {
 public:
  using LocalCommunicator::LocalCommunicator;
  std::shared_ptr<SharedMemory> share(int64_t /*bytes*/, bool /*is_common*/) override { return nullptr; }
};

TEST(MemoryPlan, IsWhatARankOfSeveralTakesThatCutWhatTheyKeep) {
  // At lower stages of sharding, gradients travel on a separate thread. This test does not count its memory.
  const std::vector<std::vector<const char*>> settings = {
      {},
      {"train.accumulate=2"},
      {"train.recompute=block", "train.precision=bf16", "model.dropout=0.1"},
      {"train.precision=fp16", "model.tie_weights=false", "train.sample_every=0"}};
  for (std::vector<const char*> words : settings) {
    words.insert(words.end(), {"dist.shard=full", "dist.replicas=4", "snapshot.path=none"});
    const TemporaryDirectory directory;
    const Job job = small(words, directory / "run");
    const auto group = LocalCommunicator::make_group(2);
    std::map<std::string, int64_t> run;
    {
      const QuietStderr quiet;
      run_ranks(2, [&](Communicator& launched) {
        const World world(std::make_shared<Apart>(group, launched.rank()));
        CountingPool pool;
        {
          const StreamModeScope own({.memory = &pool});
          const LanguageData data = language_data(job, world, nullptr);
          const std::unique_ptr<LanguageModel> model = make_model(job, data.vocabulary_size);
          EXPECT_EQ(train(job, world, LanguageTask(job, *model, data)), 0);
        }
        if (world.is_first()) run = peaks(pool.table());
      });
    }
    const LanguageData data = language_data(job, World::alone(), nullptr);
    auto planned = peaks(
        language_planner(job, World::alone(), data).plan_at(job, {.ranks = 2, .ranks_of_host = 1}).uses);
    const int64_t batch = planned.extract("batches").mapped();
    const int64_t early = planned.extract("total").mapped() - run.extract("total").mapped();
    EXPECT_TRUE(early >= 0 && early <= batch) << early;
    run.erase("batches");
    EXPECT_EQ(planned, run) << joined(std::vector<std::string>(words.begin(), words.end()));
  }
}

Planner planner_of(const Job& job, const MemoryLimit& limit) {
  const auto data = std::make_shared<LanguageData>(language_data(job, World::alone(), nullptr));
  Planner planner = language_planner(job, World::alone(), *data);
  planner.limits = {limit};
  planner.plan_at = [data, plan = planner.plan_at](const Job& of, const PlannedRanks& place) {
    return plan(of, place);
  };
  return planner;
}

Job random_tokens(std::vector<const char*> words) {
  words.insert(words.begin(),
               {"train.steps=1", "data.dataset=random_tokens", "train.device=cpu", "model.vocab_size=65"});
  return load(words);
}

TEST(MemoryPlan, WhatCannotFitNamesTheKeyThatDominates) {
  const auto refusal = [](const std::vector<const char*>& words) {
    const Job job = random_tokens(words);
    const Planner planner =
        planner_of(job, {24 * gib, "this machine has 24 GiB for 1 rank", MemoryLimit::Bounds::host});
    return user_error([&] { require_memory(job, planner); });
  };
  expect_contains(refusal({"train.batch_size=100000000"}),
                  {"train.batch_size = 100000000: a rank needs at least", "activations",
                   "this machine has 24 GiB for 1 rank"});
  expect_contains(refusal({"model.n_embd=1000000"}), {"model.n_embd = 1000000: ", "optimizer"});
  expect_contains(refusal({"model.n_layer=100000"}), {"model.n_layer = 100000: "});
  expect_contains(refusal({"model.vocab_size=1000000000"}), {"model.vocab_size = 1000000000: "});
  expect_contains(refusal({"data.block_size=100000000"}), {"data.block_size = 100000000: "});
  for (const std::string key : {"model.n_embd", "model.intermediate_size", "model.head_dim"})
    expect_contains(refusal({"model.family=qwen", (key + "=1000000").c_str()}), {key + " = 1000000: "});
  EXPECT_EQ(refusal({"model.preset=gpt2-large", "train.batch_size=1"}), "(nothing was thrown)");
}

TEST(MemoryPlan, FitsIntoWhatTheUserLeavesARank) {
  const World world = World::alone();
  Job job = random_tokens({"train.batch_size=128", "train.memory_gib=0.25"});
  const LanguageData data = language_data(job, world, nullptr);
  const Planner planner = language_planner(job, world, data);
  const std::string owner = "train.memory_gib = 0.25 leaves a rank 256 MiB";
  EXPECT_EQ(judge(planner.plan(job), planner.limits).limit.owner, owner);
  expect_contains(describe_plan(job, planner), {"it does not fit: " + owner});
  expect_contains(user_error([&] { require_memory(job, planner); }),
                  {"a rank needs at least", "but " + owner + "; what fits: "});
  const auto remedy = cheapest_remedy(job, planner);
  ASSERT_TRUE(remedy.has_value());
  EXPECT_LE(remedy->verdict.needed, 0.25 * gib);

  job.compute.memory_gib = 1e6;
  const Planner roomy = language_planner(job, world, data);
  EXPECT_NE(judge(roomy.plan(job), roomy.limits).limit.owner.find("has"), std::string::npos)
      << "a setting above the machine's memory must not raise the limit";
  job.compute.memory_gib = 0;
  EXPECT_EQ(language_planner(job, world, data).limits.size(), memory_limits(world).size());
}

TEST(MemoryPlan, TheLargestBatchIsTheLargest) {
  Job job = random_tokens({"train.accumulate=2"});
  Planner planner = planner_of(job, {0, "a limit"});
  planner.limits[0].bytes = planner.plan(job).peak + 20e6;
  const auto largest = largest_batch(job, planner);
  ASSERT_TRUE(largest.has_value());
  EXPECT_EQ(*largest % 2, 0);
  job.batches.batch_size = *largest;
  EXPECT_TRUE(judge(planner.plan(job), planner.limits).fits());
  job.batches.batch_size += 2;
  EXPECT_FALSE(judge(planner.plan(job), planner.limits).fits());
}

TEST(MemoryPlan, TheRemedyFitsAndIsTheCheapest) {
  const Job job = random_tokens({"train.batch_size=64", "model.n_layer=12"});
  Planner planner = planner_of(job, {0, "a limit"});
  const auto settings = [](const std::vector<std::string>& texts) {
    std::vector<Setting> all;
    for (const std::string& text : texts)
      all.push_back({text.substr(0, text.find('=')), text.substr(text.find('=') + 1)});
    return all;
  };
  // If the limit is exactly what these changes need, no cheaper change fits.
  const std::vector<std::vector<std::string>> remedies = {{"train.recompute=attention"},
                                                          {"train.recompute=block"},
                                                          {"train.recompute=block", "train.accumulate=4"}};
  for (const std::vector<std::string>& remedy : remedies) {
    planner.limits[0].bytes = planner.plan(with_settings(job, settings(remedy))).peak;
    const auto found = cheapest_remedy(job, planner);
    ASSERT_TRUE(found.has_value()) << joined(remedy);
    std::vector<std::string> chosen;
    for (const MemoryChange& change : found->changes) chosen.push_back(change.setting);
    EXPECT_EQ(chosen, remedy);
    EXPECT_TRUE(judge(planner.plan(with_settings(job, settings(chosen))), planner.limits).fits());
    EXPECT_EQ(found->changes.back().price.find("another loss"), std::string::npos);
    const auto other = cheapest_remedy(with_settings(job, {{"data.loss_mean", "micro_batch"}}), planner);
    EXPECT_EQ(other->changes.back().price.ends_with("another loss"), remedy.size() == 2);
  }
  planner.limits[0].bytes = 1;
  EXPECT_FALSE(cheapest_remedy(job, planner).has_value());
}

TEST(MemoryPlan, IdsOfATextHaveARowIfTheyAreInMemory) {
  const Job job = random_tokens({});
  for (LanguageData data = language_data(job, World::alone(), nullptr);
       const int64_t ids : {0, 200'000'000}) {
    data.id_bytes = ids;
    Planner planner = language_planner(job, World::alone(), data);
    planner.place.program.resident = 300e6;
    const MemoryPlan plan = planner.plan(job);
    EXPECT_EQ(plan.rows[0].bytes, 300e6 - static_cast<double>(ids));
    EXPECT_EQ(plan.rows[1].name == "ids of the text" && plan.rows[1].bytes == 200e6, ids > 0);
  }
}

TEST(MemoryPlan, AStageThatFitsIsFoundAndTheFewestRanksThatDo) {
  const Job job =
      random_tokens({"dist.replicas=2", "model.n_embd=256", "model.n_layer=24", "train.recompute=block"});
  Planner planner = planner_of(job, {0, "a limit"});
  planner.place = {.ranks = 2, .ranks_of_host = 2};
  const auto at = [&](Shard stage, int ranks) {
    Job other = job;
    other.dist.shard = stage;
    other.dist.replicas = ranks;
    const PlannedRanks place{.ranks = ranks, .ranks_of_host = 2, .writes_together = true};
    return planner.plan_at(other, place).peak;
  };
  for (const Shard stage : {Shard::gradients, Shard::full}) {
    planner.limits[0].bytes = at(stage, 2);
    const auto found = cheapest_remedy(job, planner);
    ASSERT_TRUE(found.has_value()) << name(stage);
    ASSERT_EQ(found->changes.size(), 1u);
    EXPECT_EQ(found->changes[0].setting, concat("dist.shard=", name(stage)));
  }
  Job full = job;
  full.dist.shard = Shard::full;
  EXPECT_EQ(fewest_ranks(full, planner), 2);
  planner.limits[0].bytes = at(Shard::full, 6);
  ASSERT_GT(at(Shard::full, 4), at(Shard::full, 6));
  EXPECT_EQ(fewest_ranks(full, planner), 6);
  Planner few = planner;
  few.most_samples = 5 * full.batches.batch_size / full.dist.replicas;
  EXPECT_EQ(fewest_ranks(full, few), std::nullopt) << "the data has five batches";
  EXPECT_EQ(fewest_ranks(job, planner), std::nullopt) << "without sharding, more ranks do not help";
  expect_contains(describe_plan(job, planner), {"2 on each host like this one: ", "dist.shard=full on 6"});
}

TEST(MemoryPlan, WhatWouldBeRefusedIsNotProposed) {
  for (const auto& words : {std::vector{"dist.shard=full", "dist.group=2"}, {"dist.reduction=native"}}) {
    Job job = random_tokens(words);
    job.dist.replicas = 4;
    Planner planner = planner_of(job, {gib / 1024, "a small limit"});
    planner.place = {.ranks = 4, .ranks_of_host = 1};
    const std::string text = describe_plan(job, planner);
    expect_contains(text, {"it does not fit: a small limit", "grows with data.dataset = random_tokens"});
    EXPECT_EQ(text.find("dist.shard="), std::string::npos) << text;
    expect_contains(user_error([&] { require_memory(job, planner); }), {"but a small limit; "});
  }
}

TEST(MemoryPlan, RanksOfAHostShare) {
  const Job job = random_tokens({"dist.replicas=2", "model.n_embd=256", "snapshot.path=none"});
  const LanguageData data = language_data(job, World::alone(), nullptr);
  const auto plan = [&](int ranks) {
    return plan_memory(job, {.ranks = ranks, .ranks_of_host = ranks}, [&](const Job& made) {
      const auto planned = std::make_shared<const PlannedTask>(made, data);
      return std::shared_ptr<const TrainingTask>(planned, &planned->task);
    });
  };
  const MemoryPlan one = plan(1), both = plan(2);
  EXPECT_EQ(one.shared, 0);
  EXPECT_EQ(one.host, one.peak);
  EXPECT_LT(both.host, 2 * both.peak) << "shared memory must count once";
  EXPECT_GT(both.host, both.peak + both.shared / 2);
}

TEST(MemoryPlan, AShardedRankKeepsItsPartAndAFewUnits) {
  const auto rows = [](const std::string& stage, int replicas) {
    const std::string shard = "dist.shard=" + stage, count = concat("dist.replicas=", replicas);
    const Job job = random_tokens({"model.n_embd=256", "model.n_layer=8", "data.block_size=8",
                                   "train.batch_size=1", "snapshot.path=none", shard.c_str(), count.c_str()});
    const LanguageData data = language_data(job, World::alone(), nullptr);
    std::map<std::string, double> all;
    for (const MemoryRow& row :
         language_planner(job, World::alone(), data).plan_at(job, {.ranks = 4, .ranks_of_host = 4}).rows)
      all[row.name] = row.bytes;
    return all;
  };
  const Job job = random_tokens({"model.n_embd=256", "model.n_layer=8", "data.block_size=8"});
  const LanguageData data = language_data(job, World::alone(), nullptr);
  const std::unique_ptr<LanguageModel> model = make_model(job, data.vocabulary_size);
  const LanguageTask task(job, *model, data);
  const ParameterSpace space(task.parameters(), {.group = task.group_rule()});
  const double all = 4.0 * static_cast<double>(space.layout.elements()), part = all / 4, little = 0.04 * part;
  std::vector<double> units;
  for (const Range& unit : space.layout.units()) units.push_back(4.0 * static_cast<double>(unit.size()));
  std::ranges::sort(units, std::greater());

  std::map<std::string, double> full = rows("full", 4);
  EXPECT_NEAR(full["weights"], part, little);
  EXPECT_NEAR(full["gathered weights"], units[0] + units[1] + units[2] + units[0], little)
      << "three units in progress, and one for the hash";
  EXPECT_NEAR(full["optimizer"], 2 * part, little);
  EXPECT_GE(full["gradients"], part + 2 * units[0]);
  EXPECT_LE(full["gradients"], part + 3 * units[0] + little);
  EXPECT_NEAR(rows("full", 16)["gradients"], full["gradients"] + part, little) << "two partial sums";
  EXPECT_NEAR(rows("full", 64)["gradients"], full["gradients"] + 3 * part, little) << "four partial sums";

  std::map<std::string, double> gradients = rows("gradients", 4);
  EXPECT_NEAR(gradients["weights"], all, little);
  EXPECT_EQ(gradients.count("gathered weights"), 0u);
  EXPECT_NEAR(gradients["gradients"], full["gradients"], units[0] + little);
  EXPECT_NEAR(gradients["optimizer"], 2 * part, little);
  EXPECT_NEAR(gradients["ranges of other ranks"], 0.75 * units[0], little) << "a unit is one bucket";

  std::map<std::string, double> optimizer = rows("optimizer", 4);
  EXPECT_NEAR(optimizer["weights"], all, little);
  EXPECT_NEAR(optimizer["gradients"], all, little);
  EXPECT_NEAR(optimizer["optimizer"], 2 * part, little);
  EXPECT_NEAR(optimizer["ranges of other ranks"], 0.75 * (all - units[0] / 2), 0.5 * units[0])
      << "the second of two buckets; the first one is small";
  EXPECT_NEAR(rows("optimizer", 256)["gradients"], 7 * all, little) << "a slot for each level of the tree";
}

TEST(MemoryPlan, ALoopOfOnesOwnIsPlannedByRunningItDry) {
  const auto loop = [] {
    const Mlp model({1 << 20, 1 << 20, 1});
    ParameterSpace space(model.parameters());
    DataParallel ddp(space, World::alone(), {});
    AdamW optimizer(space, {});
    ddp.backward(mean_squared_error(model(zeros({4, 1 << 20})), zeros({4, 1})));
    ddp.step(optimizer, 1e-3);
  };
  const MemoryPlan plan = plan_memory(loop);
  const double weights = 4.0 * (1 << 20) * (1 << 20);
  EXPECT_GT(plan.peak, 4 * weights);
  EXPECT_LT(plan.peak, 6.1 * weights);
}

}  // namespace
}  // namespace lockstep
