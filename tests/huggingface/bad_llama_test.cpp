// SPDX-License-Identifier: Apache-2.0
// Folders of Llamas and their relatives that Lockstep does not compute.
#include <optional>

#include "huggingface/bad_folder.h"
#include "lockstep/models/llama/llama_options.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/safetensors.h"

namespace lockstep {
namespace {

class BadLlama : public BadFolder {
 protected:
  BadLlama() : BadFolder("llama3") {}
};

TEST_F(BadLlama, WhatIsNotComputedIsNamed) {
  const std::string config = read_text(path_of("config.json"));
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}}, no_factor = {{"rope_type", "linear"}},
             inverse = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 4.0},
                        {"high_freq_factor", 1.0},
                        {"original_max_position_embeddings", 64}};
  const std::vector<std::pair<const char*, Json>> fields = {
      {"model_type", "llama4"},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"rope_scaling", yarn},
      {"rope_scaling", no_factor},
      {"rope_scaling", inverse},
      {"rope_scaling", 7},
      {"rope_theta", 0},
      {"rope_theta", "big"},
      {"partial_rotary_factor", 0.5},
      {"use_sliding_window", true},
      {"layer_types", Json::array({"sliding_attention"})},
      {"num_key_value_heads", 2},
      {"num_key_value_heads", 0},
      {"head_dim", 7},
      {"head_dim", -2},
      {"intermediate_size", nullptr},
      {"rms_norm_eps", 0},
      {"vocab_size", int64_t{1} << 31},
      {"tie_word_embeddings", 1}};
  for (const auto& [name, value] : fields) {
    const std::string said = with_field(name, value);
    expect_contains(said, {"config.json", name});
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    write("config.json", config);
  }
  for (const auto& [name, value] : std::vector<std::pair<const char*, Json>>{
           {"sliding_window", 15}, {"layer_types", {"full_attention"}}}) {
    EXPECT_EQ(with_field(name, value), "(nothing was thrown)") << name;
    write("config.json", config);
  }
  expect_contains(with_field("model_type", "qwen2"), {"there is no tensor", "bias"});
  expect_contains(with_field("model_type", "qwen3"), {"there is no tensor", "_norm.weight"});
  write("config.json", config);
  expect_contains(with_field("num_hidden_layers", 1), {"tensor layers.1.", "does not belong to the Llama"});
}

/// Both versions of transformers prefer rope_scaling.
TEST_F(BadLlama, RopeScalingIsPreferredToRopeParameters) {
  const std::string config = read_text(path_of("config.json"));
  const auto factor_of = [&](const Json& scaling, const Json& parameters) {
    Json changed = Json::parse(config);
    changed["rope_scaling"] = scaling;
    changed["rope_parameters"] = parameters;
    const ModelDescription model = read_model_config(changed.dump(), "config.json");
    return model.options.own_options<LlamaOptions>("llama").rope.factor;
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}},
             more = {{"rope_type", "linear"}, {"factor", 3.0}},
             yarn = {{"rope_type", "yarn"}, {"factor", 4.0}}, of_layers = {{"full_attention", linear}};
  EXPECT_EQ(factor_of(linear, more), 2.0);
  EXPECT_EQ(factor_of(nullptr, more), 3.0);
  EXPECT_EQ(factor_of(Json::object(), more), 3.0);
  for (const Json& parameters : {Json(more), Json::object(), Json()})
    expect_contains(user_error([&] { factor_of(yarn, parameters); }), {"rope_scaling.rope_type", "yarn"});
  expect_contains(user_error([&] { factor_of(nullptr, of_layers); }), {"rope_parameters.full_attention"});
}

class BadMistral : public BadFolder {
 protected:
  BadMistral() : BadFolder("mistral") {}
};

TEST_F(BadMistral, AWindowIsRefusedUnlessItCoversTheContext) {
  const std::string config = read_text(path_of("config.json"));
  const auto with = [&](int64_t positions, const std::optional<Json>& window) {
    write("config.json", config);
    return with_config([&](Json& changed) {
      changed["max_position_embeddings"] = positions;
      changed.erase("sliding_window");
      if (window) changed["sliding_window"] = *window;
    });
  };
  EXPECT_EQ(with(8192, nullptr), "(nothing was thrown)");
  EXPECT_EQ(with(8192, 8192), "(nothing was thrown)");
  EXPECT_EQ(with(4096, std::nullopt), "(nothing was thrown)") << "the window is 4096";
  expect_contains(with(8192, 8191), {"sliding_window", "8192"});
  expect_contains(with(8192, std::nullopt), {"sliding_window", "8192"});
  write("config.json", config);
  expect_contains(with_config([](Json& changed) { changed.erase("num_key_value_heads"); }),
                  {"num_key_value_heads is missing"});
  write("config.json", config);
  expect_contains(with_field("hidden_size", 34), {"hidden_size", "num_attention_heads = 4"});
}

/// The frequencies of rotary positions follow from config.json.
TEST_F(BadLlama, StoredFrequenciesAreIgnoredButNotThoseOfAFurtherLayer) {
  const auto with_tensor = [&](const std::string& name) {
    fs::remove_all(folder());
    fs::copy(LOCKSTEP_SOURCE_DIR "/tests/golden/huggingface/llama3", folder());
    SafeTensors content = load_safetensors(path_of("model.safetensors"));
    content.tensors.push_back({name, from_values(std::vector<float>{1, 2}, {2})});
    write("model.safetensors", to_safetensors(content));
    return problem();
  };
  EXPECT_EQ(with_tensor("model.layers.1.self_attn.rotary_emb.inv_freq"), "(nothing was thrown)");
  expect_contains(with_tensor("model.layers.2.self_attn.rotary_emb.inv_freq"),
                  {"does not belong to the model"});
  expect_contains(with_tensor("model.layers.1.self_attn.sinks"), {"does not belong to the Llama"});
}

}  // namespace
}  // namespace lockstep
