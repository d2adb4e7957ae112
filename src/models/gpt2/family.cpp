// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/family.h"

#include "lockstep/config/rows.h"
#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/models/gpt2/gpt2_options.h"
#include "lockstep/models/gpt2/hugging_face.h"

namespace lockstep {
namespace {

/// Returns the rows of the options that only GPT-2 has.
KeyRows<ModelOptions> gpt2_rows() {
  using O = Gpt2Options;
  constexpr auto semantic = KeyClass::semantic;
  KeyRows<O> rows("model", "Model");
  rows.add("bias", &O::bias, semantic, "gpt2: biases in linear layers and layer norms");
  rows.add("activation", &O::activation, {{"gelu_tanh", Gelu::tanh}, {"gelu_erf", Gelu::erf}}, semantic,
           "gpt2: activation of the MLP: GELU approximated by tanh (as GPT-2), or exact GELU");
  return rows_within<ModelOptions>(
      rows, [](auto& model) -> auto& { return model.template own_options<Gpt2Options>(gpt2_name); });
}

Gpt::Options sizes_of(const ModelOptions& options, const Recompute& recompute = {}) {
  const auto& own = options.own_options<Gpt2Options>(gpt2_name);
  return {.vocabulary = options.vocab_size,
          .rows = table_rows(options),
          .block_size = options.n_positions,
          .layers = options.n_layer,
          .heads = options.n_head,
          .width = options.n_embd,
          .dropout = options.dropout,
          .has_bias = own.bias,
          .tie_weights = options.tie_weights,
          .activation = own.activation,
          .recompute = recompute};
}

class Gpt2Family final : public Family {
 public:
  std::string name() const override { return gpt2_name; }
  std::string title() const override { return "GPT-2"; }
  /// Returns the sizes of GPT (Radford et al. 2018), GPT-2 (Radford et al. 2019), the smallest Gopher (Rae et
  /// al. 2021), and minGPT's three small models.
  std::vector<ModelPreset> presets() const override {
    return {{"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
            {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
            {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48}};
  }
  ModelOptions ordinary() const override {
    ModelOptions sizes;
    sizes.n_embd = 768;
    sizes.n_layer = 12;
    sizes.vocab_size = 50304;
    sizes.n_positions = 1024;
    return sizes;
  }
  KeyRows<ModelOptions> rows() const override { return gpt2_rows(); }
  std::unique_ptr<LanguageModel> make(const ModelOptions& options, const Recompute& recompute,
                                      uint64_t seed) const override {
    return std::make_unique<Gpt>(sizes_of(options, recompute), seed);
  }

  std::vector<std::string> model_types() const override { return {gpt2_name}; }
  ModelDescription read_config(const std::string& json, const std::string& origin) const override {
    ModelDescription model = read_gpt2_config(json, origin);
    model.family = this;
    return model;
  }
  std::string config_json(const ModelDescription& model, DType dtype) const override {
    return gpt2_config_json(sizes_of(model.options), model.ids, dtype);
  }
  std::map<std::string, Shape> stored_tensors(const ModelDescription& model) const override {
    return gpt2_tensors(sizes_of(model.options));
  }
  std::string stored_name(const std::string& name) const override { return gpt2_stored_name(name); }
  bool is_ignored(const std::string& name, const ModelDescription& model) const override {
    return is_gpt2_mask(name, model.options.n_layer);
  }
  Head head(const ModelDescription& model) const override {
    return {
        .table = "transformer.wte.weight", .head = "lm_head.weight", .is_tied = model.options.tie_weights};
  }
};

}  // namespace

const Family& gpt2_family() {
  static const Gpt2Family family;
  return family;
}

}  // namespace lockstep
