// SPDX-License-Identifier: Apache-2.0
// The keys of the families of models.
#include <gtest/gtest.h>

#include "lockstep/job/load_job.h"
#include "lockstep/models/family.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

Job job_with(const SettingLayer& settings) {
  Arguments arguments;
  arguments.program = "train_gpt";
  arguments.overrides = settings;
  for (const Setting& more :
       SettingLayer{{"train.steps", "1000"}, {"train.device", "cpu"}, {"snapshot.path", "none"}})
    arguments.overrides.push_back(more);
  return resolve(load_settings(arguments), World::alone());
}

TEST(FamilyPresets, HaveThePublishedNumbersOfParameters) {
  const std::vector<std::tuple<const char*, int64_t, int64_t>> models = {
      {"smollm2-135m", 49152, 134'515'008},
      {"smollm2-360m", 49152, 361'821'120},
      {"llama-3.2-1b", 128256, 1'235'814'400},
      {"qwen2.5-0.5b", 151936, 494'032'768},
      {"qwen3-0.6b", 151936, 596'049'920}};
  for (const auto& [preset, symbols, parameters] : models) {
    const Job job = job_with({{"model.preset", preset}});
    const ModelOptions options = sized(job.model, symbols, 1024);
    const auto model = family_of(options).make(options, {}, 1);  // its parameters have no memory yet
    EXPECT_EQ(model->used_parameters(), parameters) << preset;
    EXPECT_EQ(count_parameters(model->parameters()), parameters) << preset;
  }
}

std::string refusal(const SettingLayer& settings) {
  return user_error([&] { job_with(settings); });
}

TEST(FamilyKeys, ThatDoNotFitAreRefused) {
  const Setting llama{"model.family", "llama"};
  expect_contains(refusal({llama, {"model.n_kv_head", "3"}}), {"model.n_head = 4", "model.n_kv_head = 3"});
  expect_contains(refusal({llama, {"model.head_dim", "7"}}), {"model.head_dim = 7", "even"});
  expect_contains(refusal({llama, {"model.n_embd", "130"}}), {"model.n_embd = 130", "model.n_head = 4"});
  // transformers refuses such a Llama, but no such Qwen.
  expect_contains(refusal({llama, {"model.n_embd", "130"}, {"model.head_dim", "32"}}),
                  {"model.n_embd = 130"});
  EXPECT_EQ(refusal({{"model.family", "qwen"}, {"model.n_embd", "130"}, {"model.head_dim", "32"}}),
            "(nothing was thrown)");
  expect_contains(refusal({llama, {"model.bias", "false"}}),
                  {"model.bias = false is for model.family = gpt2", "is llama", "set model.bias = true"});
  expect_contains(refusal({{"model.n_kv_head", "2"}}),
                  {"model.n_kv_head = 2 is for model.family = llama", "gpt2"});
  expect_contains(refusal({llama, {"model.qwen_version", "2"}}), {"model.qwen_version = 2", "qwen"});
  expect_contains(refusal({llama,
                           {"model.rope_scaling", "llama3"},
                           {"model.rope_factor", "8"},
                           {"model.rope_low_freq_factor", "4"},
                           {"model.rope_high_freq_factor", "2"}}),
                  {"model.rope_high_freq_factor = 2", "model.rope_low_freq_factor = 4"});
  expect_contains(refusal({llama, {"model.rope_factor", "8"}}), {"model.rope_factor = 8", "no effect"});
  expect_contains(refusal({llama, {"model.rope_scaling", "linear"}}), {"needs a factor above 1"});
  expect_contains(refusal({llama, {"model.head_dim", "4000000000000000000"}}), {"model.head_dim", "1048576"});
  expect_contains(refusal({llama, {"model.rope_theta", "1e-30"}}), {"model.rope_theta"});
  expect_contains(refusal({{"model.family", "gemma"}}), {"model.family", "llama"});
}

TEST(FamilyPresets, AreOfOneFamilyAndGiveWayToSizes) {
  expect_contains(refusal({{"model.family", "llama"}, {"model.preset", "qwen3-0.6b"}}),
                  {"model.preset = qwen3-0.6b is a qwen, but model.family = llama"});
  expect_contains(refusal({{"model.family", "llama"}, {"model.preset", "gpt2"}}),
                  {"model.preset = gpt2 is a gpt2"});
  const ModelOptions one_size = job_with({{"model.preset", "qwen3-0.6b"}, {"model.n_layer", "3"}}).model;
  EXPECT_EQ(one_size.family, "qwen");
  EXPECT_EQ(one_size.n_layer, 3);
  EXPECT_EQ(one_size.n_embd, 1024);
  // Sizes of one's own leave the family, too.
  const SettingLayer three_sizes = {{"model.preset", "smollm2-135m"},
                                    {"model.n_layer", "3"},
                                    {"model.n_head", "6"},
                                    {"model.n_embd", "24"}};
  const ModelOptions small = job_with(three_sizes).model;
  EXPECT_EQ(small.family, "llama");
  EXPECT_EQ(small.n_embd, 24);
  SettingLayer of_gpt2 = three_sizes;
  of_gpt2.push_back({"model.family", "gpt2"});
  expect_contains(refusal(of_gpt2), {"model.preset = smollm2-135m is a llama, but model.family = gpt2"});
}

}  // namespace
}  // namespace lockstep
