// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/llama/llama.h"

#include <cmath>
#include <memory>

#include "lockstep/models/llama/hugging_face.h"
#include "lockstep/models/llama/llama_block.h"

namespace lockstep {
namespace {

Decoder::Sizes sizes_of(const Llama::Options& o) {
  return {.vocabulary = o.vocabulary,
          .rows = o.rows,
          .block_size = o.block_size,
          .width = o.width,
          .attention_width = o.heads.queries * o.head_size,
          .dropout = o.dropout,
          .tie_weights = o.tie_weights,
          .dtype = o.dtype,
          .recompute = o.recompute};
}

Decoder::Parts parts_of_llama(const Llama::Options& o) {
  o.heads.check();
  expect(o.head_size > 0 && o.head_size % 2 == 0, "a Llama's heads have an even size, not ", o.head_size);
  expect(o.hidden > 0, "a Llama's feed-forward layer needs a width");
  Decoder::Parts parts{
      .positions = std::make_unique<RotaryPositions>(rotary_frequencies(o.head_size, o.rope), o.dtype),
      .blocks = {},
      .final_norm = std::make_unique<RmsNorm>(o.width, o.epsilon, o.dtype)};
  for (int64_t layer = 0; layer < o.layers; ++layer)
    parts.blocks.push_back(std::make_unique<LlamaBlock>(o, static_cast<uint32_t>(layer)));
  return parts;
}

constexpr Decoder::Names llama_names{.tokens = "model.embed_tokens",
                                     .positions = "model.rotary_emb",
                                     .blocks = "model.layers.",
                                     .final_norm = "model.norm",
                                     .head = "lm_head"};

void initialize_matrices(const std::vector<NamedTensor>& parameters, int64_t layers, uint64_t seed) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, tensor] = parameters[p];
    if (name.ends_with(".bias")) tensor.initialize(constant_values(0.0));
    if (tensor.shape().rank() != 2) continue;
    const bool ends_branch = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    const double std = ends_branch ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02;
    tensor.initialize(normal_values(0.0, std, seed, static_cast<uint32_t>(p)));
  }
}

}  // namespace

Llama::Llama(const Options& options, uint64_t seed)
    : Decoder(sizes_of(options), parts_of_llama(options), llama_names), options_(options) {
  initialize_matrices(parameters(), options.layers, seed);
}

ModelLayout Llama::layout(const TokenIds& ids) const {
  Options stored = options_;
  stored.vocabulary = stored_vocabulary(ids);
  ModelLayout layout = Decoder::layout(ids);
  layout.texts = {{"config.json", llama_config_json(stored, ids)},
                  {"generation_config.json", generation_config_json(ids)}};
  return layout;
}

}  // namespace lockstep
