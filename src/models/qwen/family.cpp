// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <nlohmann/json.hpp>

#include "config/rows.h"
#include "json/json_field.h"
#include "models/llama/llama_family.h"

namespace lockstep {
namespace {

constexpr const char* qwen_name = "qwen";

/// The versions of Qwen. The values are their numbers.
enum class QwenVersion { two = 2, three = 3 };

/// The options that only Qwen has. --help gives their meanings.
struct QwenOptions {
  QwenVersion version = QwenVersion::three;
};

/// Qwen: a Llama with biases of queries, keys and values (Qwen2, also 2.5), or with norms of queries and keys
/// (Qwen3).
class QwenFamily final : public LlamaFamily {
 public:
  std::string name() const override { return qwen_name; }
  std::string title() const override { return "Qwen"; }
  /// Returns the sizes of the smallest Qwen2.5 and Qwen3.
  std::vector<ModelPreset> presets() const override {
    return {{"qwen2.5-0.5b",
             24,
             14,
             896,
             {{"model.qwen_version", "2"},
              {"model.n_kv_head", "2"},
              {"model.intermediate_size", "4864"},
              {"model.rope_theta", "1000000"},
              {"model.norm_epsilon", "1e-06"}}},
            {"qwen3-0.6b",
             28,
             16,
             1024,
             {{"model.qwen_version", "3"},
              {"model.n_kv_head", "8"},
              {"model.head_dim", "128"},
              {"model.intermediate_size", "3072"},
              {"model.rope_theta", "1000000"},
              {"model.norm_epsilon", "1e-06"}}}};
  }
  Rows<ModelOptions> rows() const override {
    using O = QwenOptions;
    Rows<O> own("model", "Model");
    own.add("qwen_version", &O::version, {{"2", QwenVersion::two}, {"3", QwenVersion::three}},
            KeyClass::semantic,
            "qwen: 2 has biases of queries, keys and values; 3 normalizes each head of queries and keys");
    Rows<ModelOptions> rows = LlamaFamily::rows();
    const Rows<ModelOptions> of_model = rows_within<ModelOptions>(
        own, [](auto& model) -> auto& { return model.template own_options<QwenOptions>(qwen_name); });
    for (const auto& row : of_model.rows()) rows.add(row);
    return rows;
  }

  std::vector<std::string> model_types() const override { return {"qwen2", "qwen3"}; }
  ModelDescription read_config(const std::string& json, const std::string& origin) const override {
    ModelDescription model = LlamaFamily::read_config(json, origin);
    const bool is_two =
        JsonField<nlohmann::json>(json, origin, most_config_bytes)["model_type"].text() == "qwen2";
    model.options.own[qwen_name] = QwenOptions{is_two ? QwenVersion::two : QwenVersion::three};
    return model;
  }

 protected:
  LlamaKind kind(const ModelOptions& options) const override {
    if (options.own_options<QwenOptions>(qwen_name).version == QwenVersion::two)
      return {.architecture = "Qwen2ForCausalLM", .model_type = "qwen2", .has_biases = true};
    return {.architecture = "Qwen3ForCausalLM", .model_type = "qwen3", .has_qk_norms = true};
  }
};

}  // namespace

const Family& qwen_family() {
  static const QwenFamily family;
  return family;
}

}  // namespace lockstep
