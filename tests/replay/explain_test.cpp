// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/replay/replay_support.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

/// Runs explain and returns its JSON.
Json explained(const std::string& a, const std::string& b, const std::string& more = "",
               const std::string& environment = "") {
  const Outcome outcome =
      run_command(environment + " " + program("explain") + " " + a + " " + b + " --json " + more);
  EXPECT_LE(outcome.exit_code, 1) << outcome.errors;
  Json json = Json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << outcome.out << outcome.errors;
  EXPECT_EQ(outcome.exit_code, json.value("is_equal", false) ? 0 : 1);
  return json;
}

/// A run to compare others with, trained once for all tests.
class Explain : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory();
    train_tiny(base());
  }
  static void TearDownTestSuite() { delete std::exchange(directory_, nullptr); }
  static std::string base() { return *directory_ / "base"; }

  /// Trains another run and explains why it differs from the base.
  Json explain_other(const std::string& settings, const std::string& environment = "",
                     const std::string& train = program("train_gpt")) const {
    train_tiny(own_ / "other", settings, environment, train);
    return explained(base(), own_ / "other");
  }
  /// Explains a run of a build that computes something else.
  Json explain_build(const std::string& plant) const {
    const std::string environment = "LOCKSTEP_TEST_PLANT=" + plant;
    train_tiny(own_ / "other", "", environment, program("planted/train_gpt"));
    return explained(base(), own_ / "other", "", environment);
  }
  /// Explains a run of the same build whose processor was wrong in one step. The other run is of the same
  /// build.
  Json explain_fault(const std::string& plant) const {
    train_tiny(own_ / "right", "", "", program("planted/train_gpt"));
    train_tiny(own_ / "wrong", "", "LOCKSTEP_TEST_PLANT=" + plant, program("planted/train_gpt"));
    return explained(own_ / "right", own_ / "wrong");
  }

  const TemporaryDirectory own_;

 private:
  static TemporaryDirectory* directory_;
};
TemporaryDirectory* Explain::directory_ = nullptr;

TEST_F(Explain, EqualRunsAreEqual) {
  const Json json = explain_other("dist.shard=full train.recompute=block");
  EXPECT_TRUE(json["is_equal"]);
  EXPECT_TRUE(json["had_to_be_equal"]);
  EXPECT_EQ(json["compared_steps"], 12);
  ASSERT_EQ(json["others"].size(), 2U) << json["others"];
  EXPECT_EQ(json["others"][0]["name"], "train.recompute");
}

TEST_F(Explain, NamesEveryKeyThatFixesTheBits) {
  const std::vector<std::pair<std::string, std::string>> keys = {
      {"train.seed", "7"},       {"train.beta2", "0.95"},     {"train.learning_rate", "0.002"},
      {"model.dropout", "0.2"},  {"train.precision", "bf16"}, {"dist.replicas", "4"},
      {"train.accumulate", "1"}, {"data.block_size", "9"},    {"train.weight_decay", "0.2"}};
  for (const auto& [key, value] : keys) {
    SCOPED_TRACE(key);
    const Json json = explain_other(key + "=" + value + " snapshot.resume=never");
    EXPECT_EQ(json["cause"], "key");
    EXPECT_FALSE(json["had_to_be_equal"]);
    ASSERT_GE(json["decisive"].size(), 1U);
    bool is_named = false;
    for (const Json& difference : json["decisive"])
      is_named |= difference["name"] == key && difference["b"] == value;
    EXPECT_TRUE(is_named) << json["decisive"];
    EXPECT_GE(json["first_difference"]["step"], 1);
  }
}

TEST_F(Explain, NamesAByteOfTheData) {
  std::string text = read_text(std::string(LOCKSTEP_SOURCE_DIR) + "/README.md").substr(0, 4000);
  write_text(own_ / "one.txt", text);
  std::swap(text[2000], text[2001]);
  ASSERT_NE(text[2000], text[2001]);
  write_text(own_ / "two.txt", text);
  train_tiny(own_ / "one", "data.dataset=" + (own_ / "one.txt"));
  train_tiny(own_ / "two", "data.dataset=" + (own_ / "two.txt"));
  const Json json = explained(own_ / "one", own_ / "two");
  EXPECT_EQ(json["cause"], "data");
  EXPECT_EQ(json["decisive"][0]["name"], "corpus");
  EXPECT_NE(json["because"].get<std::string>().find("from byte 2000 on"), std::string::npos) << json;
}

TEST_F(Explain, NamesTheScope) {
  train_tiny(own_ / "other");
  replace_in_file(own_ / "other/events.jsonl", "CPU, arithmetic", "CPU with AMX, arithmetic");
  replace_in_file(own_ / "other/metrics.jsonl", "\"loss_bits\":\"4", "\"loss_bits\":\"5");
  const Json json = explained(base(), own_ / "other");
  EXPECT_EQ(json["cause"], "scope");
}

/// A change of a build, and where it shows first.
struct Planted {
  std::string plant, operation, direction, parameter;
};

class ExplainBuild : public Explain, public testing::WithParamInterface<Planted> {};

TEST_P(ExplainBuild, NamesTheFirstOperationWithOtherBits) {
  const auto& [plant, operation, direction, parameter] = GetParam();
  const Json json = explain_build(plant);
  EXPECT_TRUE(json["had_to_be_equal"]);
  EXPECT_EQ(json["cause"], "build") << json;
  ASSERT_TRUE(json["place"].is_object()) << json;
  const Json& place = json["place"];
  EXPECT_NE(place["operation"].get<std::string>().find(operation), std::string::npos) << place;
  EXPECT_EQ(place.value("direction", ""), direction) << place;
  EXPECT_TRUE(parameter.empty() || place["parameter"] == parameter) << place;
  EXPECT_NE(place["a"], place["b"]);
}

INSTANTIATE_TEST_SUITE_P(
    Builds, ExplainBuild,
    testing::Values(Planted{"layer_norm", "layer_norm (transformer.h.0.ln_1.weight)", "forward", ""},
                    Planted{"product", "linear (transformer.h.0.attn.c_attn.weight)", "forward", ""},
                    Planted{"gradient", "transformer.wte.weight", "backward", ""},
                    Planted{"backward", "feed_forward", "backward", ""},
                    Planted{"sample", "sample 0", "", ""},
                    Planted{"sum", "the sum over the replicas", "", ""},
                    Planted{"epsilon", "the update by the optimizer", "", "transformer.wte.weight"},
                    Planted{"beta2", "the update by the optimizer", "", "transformer.wte.weight"}),
    [](const auto& test) { return test.param.plant; });

TEST_F(Explain, NamesTheRunWithAFlippedBitOfAProduct) {
  const Json json = explain_fault("product@7");
  EXPECT_EQ(json["cause"], "fault");
  EXPECT_EQ(json["run"], "B");
  EXPECT_TRUE(json["builds"].empty());
  EXPECT_EQ(json["place"]["step"], 7);
}

TEST_F(Explain, NamesTheRunWithAFlippedBitOfAWeight) {
  // The weight is flipped before the update of step 8, after which a snapshot is written.
  const Json json = explain_fault("weight@8");
  EXPECT_EQ(json["cause"], "snapshot");
  EXPECT_EQ(json["run"], "B");
  EXPECT_EQ(json["place"]["step"], 8);
  EXPECT_EQ(json["place"]["parameter"], "transformer.ln_f.bias");
  EXPECT_EQ(json["place"]["element"], "[0]");
  EXPECT_NE(json["because"].get<std::string>().find("1 element of 1 tensor differs"), std::string::npos);
}

TEST_F(Explain, NamesTheRunWithAFlippedBitOfAMoment) {
  const Json json = explain_fault("moment@6");
  EXPECT_EQ(json["cause"], "fault");
  EXPECT_EQ(json["run"], "B");
}

TEST_F(Explain, NamesALineThatWasChanged) {
  train_tiny(own_ / "other");
  const std::string path = own_ / "other/metrics.jsonl";
  const size_t line = read_text(path).find("{\"step\":5,");
  const std::string bits = "\"loss_bits\":\"", text = read_text(path);
  const size_t at = text.find(bits, line) + bits.size();
  replace_in_file(path, text.substr(at, 8), "41000000");
  const Json json = explained(base(), own_ / "other");
  EXPECT_EQ(json["cause"], "record");
  EXPECT_EQ(json["run"], "B");
  EXPECT_EQ(json["place"]["step"], 5);
}

TEST_F(Explain, SaysThatABuildIsGone) {
  train_tiny(own_ / "other");
  replace_in_file(own_ / "other/events.jsonl", "flags ", "flags -ffast-math ");
  for (int step = 1; step <= 12; ++step)
    replace_in_file(own_ / "other/metrics.jsonl", "\"loss_bits\":\"4", "\"loss_bits\":\"5");
  const Json json = explained(base(), own_ / "other");
  EXPECT_EQ(json["cause"], "build");
  ASSERT_EQ(json["builds"].size(), 1U) << json;
  EXPECT_TRUE(json["builds"][0]["b"].get<std::string>().starts_with("flags -ffast-math ")) << json;
  EXPECT_NE(json["because"].get<std::string>().find("had both builds, one after the other"),
            std::string::npos)
      << json;
}

TEST_F(Explain, DoesNotBlameABuildThatComputesTheSame) {
  train_tiny(own_ / "other", "", "", program("planted/train_gpt"));
  const std::string path = own_ / "other/metrics.jsonl", text = read_text(path);
  const std::string bits = "\"loss_bits\":\"";
  replace_in_file(path, text.substr(text.rfind(bits), bits.size() + 8), bits + "41000000");
  const Json json = explained(base(), own_ / "other");
  EXPECT_EQ(json["builds"].size(), 1U);
  EXPECT_EQ(json["cause"], "record") << json;
  EXPECT_EQ(json["place"]["step"], 12);
}

TEST_F(Explain, RefusesWhatIsNoRun) {
  const Outcome outcome = run_program_named("explain", base() + " " + own_.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("is not the folder of a run"), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
}

}  // namespace
}  // namespace lockstep
