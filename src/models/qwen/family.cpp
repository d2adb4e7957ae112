// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/family.h"

#include "lockstep/config/rows.h"
#include "lockstep/models/llama/llama_family.h"
#include "lockstep/models/llama/llama_options.h"

namespace lockstep {
namespace {

/// Qwen: a Llama with biases of queries, keys and values (Qwen2, also 2.5), or with norms of queries and keys
/// (Qwen3).
class QwenFamily final : public LlamaFamily {
 public:
  std::string name() const override { return "qwen"; }
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
  std::vector<std::string> model_types() const override { return {"qwen2", "qwen3"}; }

 protected:
  KeyRows<LlamaOptions> own_rows() const override {
    KeyRows<LlamaOptions> rows = LlamaFamily::own_rows();
    rows.add("qwen_version", &LlamaOptions::qwen, {{"2", LlamaKind::qwen2}, {"3", LlamaKind::qwen3}},
             KeyClass::semantic,
             "qwen: 2 has biases of queries, keys and values; 3 normalizes each head of queries and keys");
    return rows;
  }
  LlamaKind kind(const ModelOptions& options) const override {
    return options.own_options<LlamaOptions>(llama_name).qwen;
  }
};

}  // namespace

const Family& qwen_family() {
  static const QwenFamily family;
  return family;
}

}  // namespace lockstep
