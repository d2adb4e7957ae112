// SPDX-License-Identifier: Apache-2.0
#include "huggingface/gpt2_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* prefix = "transformer.";
constexpr int64_t most_elements = int64_t{1} << 40;

/// Returns a value as one line of at most 60 characters, for a message.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// The fields of one file. Errors name the field.
class Fields {
 public:
  explicit Fields(const std::string& text) : json_(Json::parse(text)) {
    require(json_.is_object(), "it is not a JSON object");
  }

  /// Returns a field, or null if it is missing.
  const Json& at(const char* name) const {
    static const Json none;
    const auto found = json_.find(name);
    return found == json_.end() ? none : *found;
  }

  int64_t size(const char* name, int64_t most) const {
    const Json& value = at(name);
    require(!value.is_null(), name, " is missing");
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<uint64_t>() > (1ull << 62)) &&
                      value.get<int64_t>() >= 1 && value.get<int64_t>() <= most;
    require(fits, name, " = ", shown(value), ": a whole number from 1 to ", most, " is required");
    return value.get<int64_t>();
  }

  bool flag(const char* name, bool otherwise) const {
    const Json& value = at(name);
    if (value.is_null()) return otherwise;
    require(value.is_boolean(), name, " = ", shown(value), ": true or false is required");
    return value.get<bool>();
  }

  std::string word(const char* name, const std::string& otherwise) const {
    const Json& value = at(name);
    if (value.is_null()) return otherwise;
    require(value.is_string(), name, " = ", shown(value), ": a text is required");
    return value.get<std::string>();
  }

  /// Returns the id of a token, or nothing if it is outside the vocabulary.
  std::optional<int64_t> token(const char* name, int64_t vocabulary) const {
    const Json& value = at(name);
    if (!value.is_number_integer()) return {};
    const bool is_known = value >= 0 && value < vocabulary;
    return is_known ? std::optional(value.get<int64_t>()) : std::nullopt;
  }

  /// Throws unless a flag is missing or has the only supported value, `computed`.
  void expect_flag(const char* name, bool computed) const {
    require(flag(name, computed) == computed, name, " = ", computed ? "false" : "true", " is not supported");
  }

 private:
  Json json_;
};

Gelu activation_of(const Fields& fields) {
  const std::string name = fields.word("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Gelu::tanh;
  require(name == "gelu", "activation_function = ", shown(name),
          " is not supported; use gelu_new, gelu_pytorch_tanh or gelu");
  return Gelu::erf;
}

void require_computed(const Fields& fields, const Gpt2Config& config) {
  fields.expect_flag("scale_attn_weights", true);
  fields.expect_flag("scale_attn_by_inverse_layer_idx", false);
  fields.expect_flag("reorder_and_upcast_attn", false);
  fields.expect_flag("add_cross_attention", false);
  const Json& inner = fields.at("n_inner");
  require(inner.is_null() || inner == 4 * config.width, "n_inner = ", shown(inner),
          " is not supported; it must be four times n_embd, ", 4 * config.width);
  const Json& epsilon = fields.at("layer_norm_epsilon");
  require(epsilon.is_null() || (epsilon.is_number() && std::abs(epsilon.get<double>() - 1e-5) < 1e-12),
          "layer_norm_epsilon = ", shown(epsilon), " is not supported; it must be 1e-05");
}

Gpt2Config config_of(const Fields& fields) {
  const std::string type = fields.word("model_type", "");
  require(type == "gpt2", "model_type = ", shown(type), " is not supported; it must be gpt2");
  Gpt2Config config{.vocabulary = fields.size("vocab_size", int64_t{1} << 30),
                    .positions = fields.size("n_positions", int64_t{1} << 30),
                    .width = fields.size("n_embd", int64_t{1} << 20),
                    .layers = fields.size("n_layer", 1 << 14),
                    .heads = fields.size("n_head", int64_t{1} << 20),
                    .activation = activation_of(fields),
                    .is_tied = fields.flag("tie_word_embeddings", true)};
  require(config.width % config.heads == 0, "n_embd = ", config.width,
          " cannot be divided among n_head = ", config.heads, " heads");
  require(std::max({config.vocabulary, config.positions, 4 * config.width}) <= most_elements / config.width,
          "vocab_size, n_positions and n_embd need a tensor of more than ", most_elements, " elements");
  config.beginning_of_text = fields.token("bos_token_id", config.vocabulary);
  config.end_of_text = fields.token("eos_token_id", config.vocabulary);
  require_computed(fields, config);
  return config;
}

Json id_or_null(const std::optional<int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

Gpt2Config parse_gpt2_config(const std::string& json, const std::string& origin) {
  try {
    return config_of(Fields(json));
  } catch (const std::exception& problem) {
    throw UserError(concat(origin, ": ", problem.what()));
  }
}

std::string gpt2_config_json(const Gpt2Config& config, DType dtype) {
  const char* type = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  const Json json = {{"architectures", {"GPT2LMHeadModel"}},
                     {"model_type", "gpt2"},
                     {"vocab_size", config.vocabulary},
                     {"n_positions", config.positions},
                     {"n_ctx", config.positions},
                     {"n_embd", config.width},
                     {"n_layer", config.layers},
                     {"n_head", config.heads},
                     {"n_inner", nullptr},
                     {"activation_function", config.activation == Gelu::erf ? "gelu" : "gelu_new"},
                     {"resid_pdrop", config.dropout},
                     {"embd_pdrop", config.dropout},
                     {"attn_pdrop", config.dropout},
                     {"layer_norm_epsilon", 1e-5},
                     {"initializer_range", 0.02},
                     {"scale_attn_weights", true},
                     {"scale_attn_by_inverse_layer_idx", false},
                     {"reorder_and_upcast_attn", false},
                     {"add_cross_attention", false},
                     {"use_cache", true},
                     {"bos_token_id", id_or_null(config.beginning_of_text)},
                     {"eos_token_id", id_or_null(config.end_of_text)},
                     {"pad_token_id", nullptr},
                     {"tie_word_embeddings", config.is_tied},
                     {"dtype", type},
                     {"torch_dtype", type}};
  return json.dump(2) + "\n";
}

std::string generation_config_json(const Gpt2Config& config) {
  const Json json = {{"bos_token_id", id_or_null(config.beginning_of_text)},
                     {"eos_token_id", id_or_null(config.end_of_text)}};
  return json.dump(2) + "\n";
}

std::map<std::string, Shape> gpt2_tensors(const Gpt2Config& config) {
  const int64_t width = config.width;
  std::map<std::string, Shape> tensors = {{"wte.weight", {config.vocabulary, width}},
                                          {"wpe.weight", {config.positions, width}},
                                          {"ln_f.weight", {width}},
                                          {"ln_f.bias", {width}}};
  if (!config.is_tied) tensors["lm_head.weight"] = {config.vocabulary, width};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
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

std::string gpt2_name(const std::string& name) {
  return name.starts_with(prefix) ? name.substr(std::string(prefix).size()) : name;
}

}  // namespace lockstep
