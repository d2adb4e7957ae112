// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/llama/llama_family.h"

#include "lockstep/config/rows.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

const LlamaOptions& own_of(const ModelOptions& options) {
  return options.own_options<LlamaOptions>(llama_name);
}

KeyRows<LlamaOptions> rope_rows() {
  using O = RopeOptions;
  constexpr auto semantic = KeyClass::semantic;
  KeyRows<O> rows("model", "Model");
  const NumberRange positive = above(0.0);
  rows.add("rope_theta", &O::theta, semantic, at_least(1), "", "llama, qwen: base of the rotary frequencies")
      .also_called({"rope_base"});
  rows.add("rope_scaling", &O::scaling,
           {{"none", RopeScaling::none}, {"linear", RopeScaling::linear}, {"llama3", RopeScaling::llama3}},
           semantic,
           "llama, qwen: how the rotary frequencies are lowered for contexts beyond those of training");
  rows.add("rope_factor", &O::factor, semantic, at_least(1), "", "rope_scaling: divides the frequencies");
  rows.add("rope_low_freq_factor", &O::low_freq_factor, semantic, positive, "",
           "rope_scaling = llama3: waves longer than rope_original_positions / this are divided");
  rows.add("rope_high_freq_factor", &O::high_freq_factor, semantic, positive, "",
           "rope_scaling = llama3: waves shorter than rope_original_positions / this are kept");
  rows.add("rope_original_positions", &O::original_positions, semantic, between(1, 1 << 30), "positions",
           "rope_scaling = llama3: context of the first training");
  return rows_within<LlamaOptions>(
      rows, [](auto& own) -> auto& { return own.rope; });
}

}  // namespace

ModelOptions LlamaFamily::ordinary() const {
  ModelOptions sizes;
  sizes.n_embd = 2048;
  sizes.n_layer = 16;
  sizes.vocab_size = 128256;
  sizes.n_positions = 4096;
  return sizes;
}

std::vector<SizeKey> LlamaFamily::own_sizes(const ModelOptions& options) const {
  const LlamaOptions& own = own_of(options);
  // Queries have n_head x head_dim columns.
  const int64_t heads = own.head_dim > 0 ? options.n_head : 0;
  return {{"model.intermediate_size", own.intermediate_size, 8192},
          {"model.head_dim", own.head_dim, 64},
          {"model.n_head", heads, 32}};
}

KeyRows<LlamaOptions> LlamaFamily::own_rows() const {
  using O = LlamaOptions;
  constexpr auto semantic = KeyClass::semantic;
  KeyRows<O> rows("model", "Model");
  rows.add("n_kv_head", &O::n_kv_head, semantic, between(0, 1 << 20), "heads",
           "llama, qwen: heads of keys and values, which divide n_head (grouped queries); 0: n_head")
      .also_called({"num_key_value_heads", "num_kv_heads"});
  rows.add("head_dim", &O::head_dim, semantic, between(0, 1 << 20), "channels",
           "llama, qwen: channels per head, an even number; 0: n_embd / n_head")
      .also_called({"head_size"});
  rows.add("intermediate_size", &O::intermediate_size, semantic, between(0, 1 << 24), "channels",
           "llama, qwen: width of the feed-forward layer; 0: 8 / 3 of n_embd, rounded up to a multiple of 64")
      .also_called({"ffn_dim", "hidden_dim", "n_inner"});
  rows.add("norm_epsilon", &O::norm_epsilon, semantic, above(0.0), "", "llama, qwen: epsilon of the norms")
      .also_called({"rms_norm_eps"});
  const KeyRows<O> of_rope = rope_rows();
  for (const auto& row : of_rope.rows()) rows.add(row);
  return rows;
}

KeyRows<ModelOptions> LlamaFamily::rows() const {
  return rows_within<ModelOptions>(
      own_rows(), [](auto& model) -> auto& { return model.template own_options<LlamaOptions>(llama_name); });
}

void LlamaFamily::check(const ModelOptions& options) const {
  const LlamaOptions& own = own_of(options);
  // transformers refuses a Llama of other sizes, even if head_dim is given.
  if (own.head_dim == 0 || kind(options) == LlamaKind::llama) Family::check(options);
  const int64_t keys = own.key_heads(options), size = own.head_size(options);
  require(options.n_head % keys == 0, "model.n_head = ", options.n_head,
          " is not a multiple of model.n_kv_head = ", keys, "; change one of them");
  require(size % 2 == 0, own.head_dim > 0 ? "model.head_dim" : "model.n_embd / model.n_head", " = ", size,
          " channels per head; rotary positions need an even number");
  const bool is_scaled = own.rope.scaling != RopeScaling::none;
  require(is_scaled == (own.rope.factor > 1.0), "model.rope_factor = ", own.rope.factor,
          is_scaled ? ", but model.rope_scaling needs a factor above 1"
                    : " has no effect without model.rope_scaling; set linear or llama3");
  require(own.rope.scaling != RopeScaling::llama3 || own.rope.high_freq_factor > own.rope.low_freq_factor,
          "model.rope_high_freq_factor = ", own.rope.high_freq_factor,
          " must be above model.rope_low_freq_factor = ", own.rope.low_freq_factor);
}

int64_t LlamaFamily::head_size(const ModelOptions& options) const {
  return own_of(options).head_size(options);
}

Llama::Options LlamaFamily::sizes_of(const ModelOptions& options, const Recompute& recompute) const {
  const LlamaOptions& own = own_of(options);
  return {.kind = kind(options),
          .vocabulary = options.vocab_size,
          .rows = table_rows(options),
          .block_size = options.n_positions,
          .layers = options.n_layer,
          .heads = {options.n_head, own.key_heads(options)},
          .head_size = own.head_size(options),
          .width = options.n_embd,
          .hidden = own.hidden(options),
          .dropout = options.dropout,
          .epsilon = own.norm_epsilon,
          .tie_weights = options.tie_weights,
          .rope = own.rope,
          .recompute = recompute};
}

std::unique_ptr<LanguageModel> LlamaFamily::make(const ModelOptions& options, const Recompute& recompute,
                                                 uint64_t seed) const {
  return std::make_unique<Llama>(sizes_of(options, recompute), seed);
}

ModelDescription LlamaFamily::read_config(const std::string& json, const std::string& origin) const {
  ModelDescription model = read_llama_config(json, origin);
  model.family = this;
  model.options.family = name();
  return model;
}

std::string LlamaFamily::config_json(const ModelDescription& model, DType dtype) const {
  return llama_config_json(sizes_of(model.options), model.ids, dtype);
}

std::map<std::string, Shape> LlamaFamily::stored_tensors(const ModelDescription& model) const {
  return llama_tensors(sizes_of(model.options));
}

Family::Head LlamaFamily::head(const ModelDescription& model) const {
  return {
      .table = "model.embed_tokens.weight", .head = "lm_head.weight", .is_tied = model.options.tie_weights};
}

}  // namespace lockstep
