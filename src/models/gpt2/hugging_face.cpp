// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/gpt2/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/models/config_fields.h"
#include "lockstep/models/gpt2/gpt2_options.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using ConfigField = JsonField<nlohmann::json>;
constexpr const char* prefix = "transformer.";

Gelu activation_of(const ConfigField& field) {
  const std::string name = field.is_null() ? "gelu_new" : field.text();
  if (name == "gelu") return Gelu::erf;
  field.require_is(name == "gelu_new" || name == "gelu_pytorch_tanh", "gelu_new, gelu_pytorch_tanh or gelu");
  return Gelu::tanh;
}

/// Throws UserError unless each of these settings is missing or has the only supported value.
void require_computed(const ConfigField& file, int64_t width) {
  const std::pair<const char*, nlohmann::json> computed[] = {{"scale_attn_weights", true},
                                                             {"scale_attn_by_inverse_layer_idx", false},
                                                             {"reorder_and_upcast_attn", false},
                                                             {"add_cross_attention", false},
                                                             {"n_inner", 4 * width}};
  for (const auto& [name, value] : computed) require_missing_or(file[name], value);
  const ConfigField epsilon = file["layer_norm_epsilon"];
  epsilon.require_is(epsilon.is_null() || std::abs(epsilon.number() - 1e-5) < 1e-12, "1e-05");
}

}  // namespace

ModelDescription read_gpt2_config(const std::string& json, const std::string& origin) {
  const ConfigField file(json, origin, most_config_bytes);
  const auto size = [&](const char* name, int64_t most) { return file[name].whole<int64_t>(1, most); };
  ModelOptions model;
  model.vocab_size = size("vocab_size", int64_t{1} << 30);
  model.n_positions = size("n_positions", int64_t{1} << 30);
  model.n_layer = size("n_layer", 1 << 14);
  model.n_head = size("n_head", int64_t{1} << 20);
  model.n_embd = size("n_embd", int64_t{1} << 20);
  model.tie_weights = file["tie_word_embeddings"].flag(true);
  model.own[gpt2_name] = Gpt2Options{.bias = true, .activation = activation_of(file["activation_function"])};
  require(model.n_embd % model.n_head == 0, origin, ": n_embd = ", model.n_embd,
          " cannot be divided among n_head = ", model.n_head, " heads");
  require(std::max({model.vocab_size, model.n_positions, 4 * model.n_embd}) <=
              most_tensor_elements / model.n_embd,
          origin, ": vocab_size, n_positions and n_embd need a tensor of more than ", most_tensor_elements,
          " elements");
  require_computed(file, model.n_embd);
  return {.options = model, .ids = token_ids_of(file, model.vocab_size)};
}

std::string gpt2_config_json(const Gpt::Options& model, const TokenIds& ids, DType dtype) {
  Json json = {{"architectures", {"GPT2LMHeadModel"}},
               {"model_type", "gpt2"},
               {"vocab_size", model.vocabulary},
               {"n_positions", model.block_size},
               {"n_ctx", model.block_size},
               {"n_embd", model.width},
               {"n_layer", model.layers},
               {"n_head", model.heads},
               {"n_inner", nullptr},
               {"activation_function", model.activation == Gelu::erf ? "gelu" : "gelu_new"},
               {"resid_pdrop", model.dropout},
               {"embd_pdrop", model.dropout},
               {"attn_pdrop", model.dropout},
               {"layer_norm_epsilon", 1e-5},
               {"initializer_range", 0.02},
               {"scale_attn_weights", true},
               {"scale_attn_by_inverse_layer_idx", false},
               {"reorder_and_upcast_attn", false},
               {"add_cross_attention", false},
               {"use_cache", true}};
  add_common_fields(json, ids, model.tie_weights, dtype);
  return json.dump(2) + "\n";
}

std::map<std::string, Shape> gpt2_tensors(const Gpt::Options& model) {
  const int64_t width = model.width;
  std::map<std::string, Shape> tensors = {{"wte.weight", {model.vocabulary, width}},
                                          {"wpe.weight", {model.block_size, width}},
                                          {"ln_f.weight", {width}},
                                          {"ln_f.bias", {width}}};
  if (!model.tie_weights) tensors["lm_head.weight"] = {model.vocabulary, width};
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string block = concat("h.", layer, ".");
    for (const char* norm : {"ln_1", "ln_2"})
      for (const char* part : {".weight", ".bias"}) tensors[concat(block, norm, part)] = {width};
    const auto add_linear = [&](const char* name, int64_t in, int64_t out) {
      tensors[concat(block, name, ".weight")] = {in, out};
      tensors[concat(block, name, ".bias")] = {out};
    };
    add_linear("attn.c_attn", width, 3 * width);
    add_linear("attn.c_proj", width, width);
    add_linear("mlp.c_fc", width, 4 * width);
    add_linear("mlp.c_proj", 4 * width, width);
  }
  return tensors;
}

std::string gpt2_stored_name(const std::string& name) {
  return name.starts_with(prefix) ? name.substr(std::string(prefix).size()) : name;
}

bool is_gpt2_mask(const std::string& name, int64_t layers) {
  const std::string own = gpt2_stored_name(name);
  int64_t layer = -1;
  if (own.starts_with("h.")) std::from_chars(own.data() + 2, own.data() + own.size(), layer);
  const std::string of_layer = concat("h.", layer, ".attn.");
  if (layer < 0 || (own != of_layer + "bias" && own != of_layer + "masked_bias")) return false;
  require(layer < layers, "tensor ", name, " does not belong to the GPT-2 that config.json describes");
  return true;
}

}  // namespace lockstep
