// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/gpt2/gpt.h"

#include <memory>

#include "lockstep/models/gpt2/gpt2_block.h"
#include "lockstep/models/gpt2/hugging_face.h"
#include "lockstep/models/gpt2/initial_weights.h"

namespace lockstep {
namespace {

Decoder::Sizes sizes_of(const Gpt::Options& o) {
  return {.vocabulary = o.vocabulary,
          .rows = o.rows,
          .block_size = o.block_size,
          .width = o.width,
          .attention_width = o.width,
          .dropout = o.dropout,
          .tie_weights = o.tie_weights,
          .dtype = o.dtype,
          .recompute = o.recompute};
}

Decoder::Parts parts_of_gpt(const Gpt::Options& o) {
  expect(o.heads > 0 && o.width > 0 && o.width % o.heads == 0, o.heads, " heads do not divide the width ",
         o.width);
  Decoder::Parts parts{.positions = std::make_unique<LearnedPositions>(o.block_size, o.width, o.dtype),
                       .blocks = {},
                       .final_norm = std::make_unique<LayerNorm>(o.width, o.has_bias, o.dtype)};
  for (int64_t layer = 0; layer < o.layers; ++layer)
    parts.blocks.push_back(std::make_unique<Gpt2Block>(o, static_cast<uint32_t>(layer)));
  return parts;
}

constexpr Decoder::Names gpt_names{.tokens = "transformer.wte",
                                   .positions = "transformer.wpe",
                                   .blocks = "transformer.h.",
                                   .final_norm = "transformer.ln_f",
                                   .head = "lm_head"};

}  // namespace

Gpt::Gpt(const Options& options, uint64_t seed)
    : Decoder(sizes_of(options), parts_of_gpt(options), gpt_names), options_(options) {
  initialize_like_gpt2(parameters(), options.layers, seed);
}

ModelLayout Gpt::layout(const TokenIds& ids) const {
  Options stored = options_;
  stored.vocabulary = stored_vocabulary(ids);
  ModelLayout layout = Decoder::layout(ids);
  layout.texts = {{"config.json", gpt2_config_json(stored, ids)},
                  {"generation_config.json", generation_config_json(ids)}};
  if (options_.has_bias) return layout;
  for (const auto& [name, shape] : gpt2_tensors(options_))
    if (name.ends_with(".bias")) layout.zeros.push_back({concat("transformer.", name), shape});
  return layout;
}

}  // namespace lockstep
