// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/family.h"

#include "lockstep/models/llama/llama_family.h"
#include "lockstep/models/llama/llama_options.h"

namespace lockstep {
namespace {

/// Llama, and Mistral without a window, which has the same structure.
class PlainLlama final : public LlamaFamily {
 public:
  std::string name() const override { return llama_name; }
  std::string title() const override { return "Llama"; }
  /// Returns the sizes of SmolLM2 (Ben Allal et al. 2025) and of the smallest Llama 3.2.
  std::vector<ModelPreset> presets() const override {
    return {{"smollm2-135m",
             30,
             9,
             576,
             {{"model.n_kv_head", "3"}, {"model.intermediate_size", "1536"}, {"model.rope_theta", "100000"}}},
            {"smollm2-360m",
             32,
             15,
             960,
             {{"model.n_kv_head", "5"}, {"model.intermediate_size", "2560"}, {"model.rope_theta", "100000"}}},
            {"llama-3.2-1b",
             16,
             32,
             2048,
             {{"model.n_kv_head", "8"},
              {"model.intermediate_size", "8192"},
              {"model.rope_theta", "500000"},
              {"model.rope_scaling", "llama3"},
              {"model.rope_factor", "32"}}}};
  }
  std::vector<std::string> model_types() const override { return {llama_name, "mistral"}; }

 protected:
  LlamaKind kind(const ModelOptions& /*options*/) const override { return LlamaKind::llama; }
};

}  // namespace

const Family& llama_family() {
  static const PlainLlama family;
  return family;
}

}  // namespace lockstep
