// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/parameter_rules.h"

#include <gtest/gtest.h>

#include "lockstep/models/gpt2/gpt.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

TEST(MatchesPattern, StarsAndQuestionMarks) {
  for (const char* pattern : {"*", "a.b.c", "a.*", "*.c", "a*c", "?.b.?", "*b*", "**", "a.b.c*", "*.?.*"})
    EXPECT_TRUE(matches_pattern(pattern, "a.b.c")) << pattern;
  for (const char* pattern : {"", "a", "a.b", "b*", "*b", "a.b.?c", "a.b.c?", "A.*", "*c*c"})
    EXPECT_FALSE(matches_pattern(pattern, "a.b.c")) << pattern;
  EXPECT_TRUE(matches_pattern("*ab*ab", "ababxab")) << "a star must match more";
  EXPECT_TRUE(matches_pattern("", ""));
}

/// A model of two blocks and its rules.
struct Ruled {
  explicit Ruled(const std::string& freeze, const std::string& groups = "", bool tied = true)
      : model({.vocabulary = 7, .block_size = 8, .layers = 2, .heads = 2, .width = 16, .tie_weights = tied},
              1),
        rules({.weight_decay = 0.5, .freeze = freeze, .groups = groups}, model.parameters()) {}

  std::set<std::string> frozen() const {
    std::set<std::string> names;
    for (const NamedTensor& parameter : model.parameters())
      if (!parameter.tensor.requires_grad()) names.insert(parameter.name);
    return names;
  }
  ParameterGroup group_of(const std::string& name) const {
    for (const NamedTensor& parameter : model.parameters())
      if (parameter.name == name) return rules.group(name, matrices_decay(name, parameter.tensor));
    ADD_FAILURE() << name;
    return {};
  }

  Gpt model;
  ParameterRules rules;
};

TEST(ParameterRules, FreezeWhatAnyPatternNames) {
  const Ruled ruled("transformer.wte.*, transformer.h.0.ln_?.bias,*c_proj.bias");
  EXPECT_EQ(ruled.frozen(),
            (std::set<std::string>{"transformer.wte.weight", "transformer.h.0.ln_1.bias",
                                   "transformer.h.0.ln_2.bias", "transformer.h.0.attn.c_proj.bias",
                                   "transformer.h.0.mlp.c_proj.bias", "transformer.h.1.attn.c_proj.bias",
                                   "transformer.h.1.mlp.c_proj.bias"}));
  expect_contains(ruled.rules.description(), {"frozen: 7 of 28 tensors"});
  EXPECT_TRUE(Ruled("").frozen().empty());
}

TEST(ParameterRules, GiveGroupsTheirOwnRateAndDecay) {
  const Ruled ruled("transformer.wpe.*",
                    "transformer.h.0.* lr_factor=0.1, *.bias weight_decay=0.25 lr_factor=2, transformer.h.* "
                    "weight_decay=0");
  const auto has = [&](const std::string& name, double factor, double decay) {
    const ParameterGroup group = ruled.group_of(name);
    EXPECT_EQ(group.learning_rate_factor, factor) << name;
    EXPECT_EQ(group.weight_decay(0.5), decay) << name;
  };
  has("transformer.h.0.attn.c_attn.weight", 0.1, 0.5);
  has("transformer.h.0.attn.c_attn.bias", 0.1, 0.0);
  has("transformer.h.1.attn.c_attn.bias", 2.0, 0.25);
  has("transformer.h.1.attn.c_attn.weight", 1.0, 0.0);
  has("transformer.ln_f.weight", 1.0, 0.0);
  has("transformer.wte.weight", 1.0, 0.5);
}

TEST(ParameterRules, RefuseWhatNamesNothing) {
  const auto error = [](const std::string& freeze, const std::string& groups, bool tied = true) {
    return user_error([&] { Ruled(freeze, groups, tied); });
  };
  expect_contains(error("transformer.h.2.*", ""), {"train.freeze: transformer.h.2.* matches no parameter"});
  expect_contains(error("lm_head.*", ""), {"train.freeze: lm_head.* matches no parameter"});
  EXPECT_EQ(error("lm_head.*", "", false), "(nothing was thrown)");
  expect_contains(error("a,,b", ""), {"train.freeze = a,,b", "comma"});
  expect_contains(error("*", ""), {"train.freeze = *", "nothing to train"});
  expect_contains(error("", "wte lr_factor=1"), {"train.groups: wte matches no parameter"});
  expect_contains(error("", "* lr=1"), {"train.groups: * lr=1", "lr is neither lr_factor nor weight_decay"});
  expect_contains(error("", "* lr_factor"), {"* lr_factor: lr_factor needs a number", "lr_factor=0.1"});
  for (const char* value : {"-1", "nan", "inf", "x", "1x", ""})
    expect_contains(error("", concat("* weight_decay=", value)), {"weight_decay needs a number"});
  expect_contains(error("", "* lr_factor=1 lr_factor=2"), {"is given twice"});
  expect_contains(error("", "*"), {"train.groups: *: give lr_factor=K"});
  expect_contains(error("", "* lr_factor=1, *.bias lr_factor=2"), {"train.groups: *.bias matches only"});
  expect_contains(error("*.bias", "*.bias lr_factor=2"), {"train.groups: *.bias matches only", "frozen"});
}

}  // namespace
}  // namespace lockstep
