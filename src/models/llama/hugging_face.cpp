// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/llama/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/models/config_fields.h"
#include "lockstep/models/llama/llama_options.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using ConfigField = JsonField<nlohmann::json>;

constexpr const char* llama_prefix = "model.";

double positive(const ConfigField& field) {
  field.require_is(field.number() > 0.0, "above 0");
  return field.number();
}

double at_least_one(const ConfigField& field) {
  field.require_is(field.number() >= 1.0, "at least 1");
  return field.number();
}

/// Reads rope_theta and rope_scaling of transformers 4, or rope_parameters of transformers 5. Both versions
/// prefer rope_scaling.
RopeOptions read_rope(const ConfigField& file) {
  RopeOptions rope;
  const ConfigField scaling = file["rope_scaling"];
  const bool is_scaled = !scaling.is_null() && !scaling.members().empty();
  const ConfigField parameters = file[is_scaled ? "rope_scaling" : "rope_parameters"];
  if (const ConfigField theta = file["rope_theta"]; !theta.is_null()) rope.theta = at_least_one(theta);
  if (parameters.is_null()) return rope;
  for (const auto& [name, member] : parameters.members())
    member.require_is(!member.json().is_object(),
                      "a number or a text: all layers share one set of parameters");
  if (const ConfigField theta = parameters["rope_theta"]; !theta.is_null()) rope.theta = at_least_one(theta);
  require_missing_or<nlohmann::json>(parameters["partial_rotary_factor"], 1.0);
  const ConfigField type = parameters[parameters["rope_type"].is_null() ? "type" : "rope_type"];
  const std::map<std::string, RopeScaling> known = {
      {"default", RopeScaling::none}, {"linear", RopeScaling::linear}, {"llama3", RopeScaling::llama3}};
  const auto found = known.find(type.is_null() ? "default" : type.text());
  type.require_is(found != known.end(), "default, linear or llama3");
  rope.scaling = found->second;
  if (rope.scaling == RopeScaling::none) return rope;
  rope.factor = at_least_one(parameters["factor"]);
  if (rope.scaling == RopeScaling::linear) return rope;
  rope.low_freq_factor = positive(parameters["low_freq_factor"]);
  rope.high_freq_factor = positive(parameters["high_freq_factor"]);
  parameters["high_freq_factor"].require_is(rope.high_freq_factor > rope.low_freq_factor,
                                            "above low_freq_factor");
  rope.original_positions =
      parameters["original_max_position_embeddings"].whole<int64_t>(1, int64_t{1} << 30);
  return rope;
}

Json rope_json(const RopeOptions& rope) {
  if (rope.scaling == RopeScaling::none) return {{"rope_type", "default"}};
  if (rope.scaling == RopeScaling::linear) return {{"rope_type", "linear"}, {"factor", rope.factor}};
  return {{"rope_type", "llama3"},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_positions}};
}

/// Throws UserError for a setting that this model does not compute.
void require_computed_llama(const ConfigField& file, int64_t positions) {
  const ConfigField activation = file["hidden_act"];
  activation.require_is(activation.is_null() || activation.text() == "silu" || activation.text() == "swish",
                        "silu");
  for (const char* bias : {"attention_bias", "mlp_bias"})
    require_missing_or<nlohmann::json>(file[bias], false);
  require_missing_or<nlohmann::json>(file["partial_rotary_factor"], 1.0);
  require_missing_or<nlohmann::json>(file["use_sliding_window"], false);
  if (const ConfigField types = file["layer_types"]; !types.is_null())
    for (const ConfigField& type : types.elements())
      type.require_is(type.text() == "full_attention", "full_attention: windows are not supported");
  // Only that of a Mistral is on by itself. It is 4096 unless the field says otherwise.
  const ConfigField window = file["sliding_window"];
  const bool has_window = file.has("sliding_window");
  if (file["model_type"].text() != "mistral" || (has_window && window.is_null())) return;
  window.require_is((has_window ? window.whole<int64_t>(1) : 4096) >= positions,
                    "null, or at least max_position_embeddings = ", positions,
                    ": attention within a window is not supported");
}

/// The names of a kind in a config.json.
struct KindNames {
  const char *architecture, *model_type;
};

KindNames names_of(LlamaKind kind) {
  if (kind == LlamaKind::qwen2) return {"Qwen2ForCausalLM", "qwen2"};
  if (kind == LlamaKind::qwen3) return {"Qwen3ForCausalLM", "qwen3"};
  return {"LlamaForCausalLM", llama_name};
}

LlamaOptions read_own_options(const ConfigField& file, const ModelOptions& model) {
  const auto size_or = [&](const char* name, int64_t otherwise) {
    return file[name].is_null() ? otherwise : file[name].whole<int64_t>(1, int64_t{1} << 20);
  };
  const std::string type = file["model_type"].text();
  const bool is_qwen3 = type == "qwen3";
  // transformers refuses a Llama of other sizes, even if head_dim is given.
  const bool needs_multiple = !type.starts_with("qwen") || (!is_qwen3 && file["head_dim"].is_null());
  file["hidden_size"].require_is(!needs_multiple || model.n_embd % model.n_head == 0,
                                 "a multiple of num_attention_heads = ", model.n_head);
  const ConfigField key_heads = file["num_key_value_heads"];
  // A Llama without this field has as many as query heads. Its relatives have other numbers.
  key_heads.require_is(type == llama_name || !key_heads.is_null(), "a whole number");
  LlamaOptions own{.n_kv_head = size_or("num_key_value_heads", model.n_head),
                   .head_dim = size_or("head_dim", is_qwen3 ? 128 : model.n_embd / model.n_head),
                   .intermediate_size = file["intermediate_size"].whole<int64_t>(1, int64_t{1} << 24),
                   .norm_epsilon = file["rms_norm_eps"].is_null() ? 1e-6 : positive(file["rms_norm_eps"]),
                   .rope = read_rope(file),
                   .qwen = type == "qwen2" ? LlamaKind::qwen2 : LlamaKind::qwen3};
  key_heads.require_is(model.n_head % own.n_kv_head == 0,
                       "a divisor of num_attention_heads = ", model.n_head);
  const bool is_even = own.head_dim > 0 && own.head_dim % 2 == 0;
  file[file["head_dim"].is_null() ? "hidden_size" : "head_dim"].require_is(
      is_even, "such that heads have an even size, for rotary positions");
  return own;
}

}  // namespace

ModelDescription read_llama_config(const std::string& json, const std::string& origin) {
  const ConfigField file(json, origin, most_config_bytes);
  const auto size = [&](const char* name, int64_t most) { return file[name].whole<int64_t>(1, most); };
  ModelOptions model;
  model.vocab_size = size("vocab_size", int64_t{1} << 30);
  model.n_positions = size("max_position_embeddings", int64_t{1} << 30);
  model.n_layer = size("num_hidden_layers", 1 << 14);
  model.n_head = size("num_attention_heads", int64_t{1} << 20);
  model.n_embd = size("hidden_size", int64_t{1} << 20);
  model.tie_weights = file["tie_word_embeddings"].flag(false);
  require_computed_llama(file, model.n_positions);
  const LlamaOptions own = read_own_options(file, model);
  model.own[llama_name] = own;
  const int64_t rows = std::max({model.vocab_size, own.intermediate_size, model.n_head * own.head_dim});
  require(rows <= most_tensor_elements / model.n_embd, origin,
          ": vocab_size, intermediate_size, head_dim and hidden_size need a tensor of more than ",
          most_tensor_elements, " elements");
  return {.options = model, .ids = token_ids_of(file, model.vocab_size)};
}

std::string llama_config_json(const Llama::Options& model, const TokenIds& ids, DType dtype) {
  const Json scaling = rope_json(model.rope);
  Json parameters = scaling;
  parameters["rope_theta"] = model.rope.theta;
  const KindNames names = names_of(model.kind);
  Json json = {{"architectures", {names.architecture}},
               {"model_type", names.model_type},
               {"vocab_size", model.vocabulary},
               {"hidden_size", model.width},
               {"intermediate_size", model.hidden},
               {"num_hidden_layers", model.layers},
               {"num_attention_heads", model.heads.queries},
               {"num_key_value_heads", model.heads.keys},
               {"head_dim", model.head_size},
               {"hidden_act", "silu"},
               {"max_position_embeddings", model.block_size},
               {"initializer_range", 0.02},
               {"rms_norm_eps", model.epsilon},
               {"attention_dropout", model.dropout},
               {"use_cache", true},
               {"rope_theta", model.rope.theta},
               {"rope_scaling", model.rope.scaling == RopeScaling::none ? Json(nullptr) : scaling},
               {"rope_parameters", parameters}};
  if (model.kind != LlamaKind::qwen2) json["attention_bias"] = false;
  if (model.kind == LlamaKind::llama) {
    json["mlp_bias"] = false;
  } else {
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
    json["max_window_layers"] = model.layers;
  }
  add_common_fields(json, ids, model.tie_weights, dtype);
  return json.dump(2) + "\n";
}

std::map<std::string, Shape> llama_tensors(const Llama::Options& model) {
  const int64_t width = model.width, size = model.head_size;
  const int64_t queries = model.heads.queries * size, keys = model.heads.keys * size;
  std::map<std::string, Shape> tensors = {{"embed_tokens.weight", {model.vocabulary, width}},
                                          {"norm.weight", {width}}};
  if (!model.tie_weights) tensors["lm_head.weight"] = {model.vocabulary, width};
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string block = concat("layers.", layer, ".");
    const auto add = [&](const char* name, const Shape& shape) { tensors[block + name] = shape; };
    add("input_layernorm.weight", {width});
    add("post_attention_layernorm.weight", {width});
    add("self_attn.q_proj.weight", {queries, width});
    add("self_attn.k_proj.weight", {keys, width});
    add("self_attn.v_proj.weight", {keys, width});
    add("self_attn.o_proj.weight", {width, queries});
    add("mlp.gate_proj.weight", {model.hidden, width});
    add("mlp.up_proj.weight", {model.hidden, width});
    add("mlp.down_proj.weight", {width, model.hidden});
    if (model.has_biases()) {
      add("self_attn.q_proj.bias", {queries});
      add("self_attn.k_proj.bias", {keys});
      add("self_attn.v_proj.bias", {keys});
    }
    if (model.has_head_norms())
      for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) add(norm, {size});
  }
  return tensors;
}

std::string llama_stored_name(const std::string& name) {
  return name.starts_with(llama_prefix) ? name.substr(std::string(llama_prefix).size()) : name;
}

bool is_rotary_buffer(const std::string& name, int64_t layers) {
  const std::string own = llama_stored_name(name);
  if (own == "rotary_emb.inv_freq") return true;
  int64_t layer = -1;
  if (own.starts_with("layers.")) std::from_chars(own.data() + 7, own.data() + own.size(), layer);
  if (layer < 0 || own != concat("layers.", layer, ".self_attn.rotary_emb.inv_freq")) return false;
  require(layer < layers, "tensor ", name, " does not belong to the model that config.json describes");
  return true;
}

}  // namespace lockstep
