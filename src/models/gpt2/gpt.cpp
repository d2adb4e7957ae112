// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2/gpt.h"

#include <algorithm>

#include "models/gpt2/gpt2_block.h"
#include "models/gpt2/hugging_face.h"
#include "models/gpt2/initial_weights.h"

namespace lockstep {
namespace {

Gpt::Options validated(Gpt::Options options) {
  if (options.rows == 0) options.rows = options.vocabulary;
  expect(options.heads > 0 && options.width > 0 && options.width % options.heads == 0, options.heads,
         " heads do not divide the width ", options.width);
  return options;
}

Decoder::Sizes sizes_of(const Gpt::Options& o) {
  return {.vocabulary = o.vocabulary,
          .rows = o.rows,
          .block_size = o.block_size,
          .width = o.width,
          .attention_width = o.width,
          .dropout = o.dropout,
          .recompute = o.recompute};
}

Decoder::Parts parts_of_gpt(const Gpt::Options& o) {
  Decoder::Parts parts{.tokens = std::make_unique<Embedding>(o.rows, o.width, o.dtype),
                       .positions = std::make_unique<LearnedPositions>(o.block_size, o.width, o.dtype),
                       .blocks = {},
                       .final_norm = std::make_unique<LayerNorm>(o.width, o.has_bias, o.dtype),
                       .head = {}};
  for (int64_t layer = 0; layer < o.layers; ++layer)
    parts.blocks.push_back(std::make_unique<Gpt2Block>(o, static_cast<uint32_t>(layer)));
  if (!o.tie_weights) parts.head = std::make_unique<Linear>(o.width, o.rows, false, o.dtype);
  return parts;
}

constexpr Decoder::Names gpt_names{.tokens = "transformer.wte",
                                   .positions = "transformer.wpe",
                                   .blocks = "transformer.h.",
                                   .final_norm = "transformer.ln_f",
                                   .head = "lm_head"};

}  // namespace

Gpt::Gpt(const Options& options, uint64_t seed)
    : Decoder(sizes_of(validated(options)), parts_of_gpt(validated(options)), gpt_names),
      options_(validated(options)) {
  initialize_like_gpt2(parameters(), options.layers, seed);
}

ModelLayout Gpt::layout(const TokenIds& ids) const {
  Options stored = options_;
  if (ids.count) stored.vocabulary = std::min(stored.vocabulary, *ids.count);
  ModelLayout layout{.rows = {{"transformer.wte.weight", stored.vocabulary}},
                     .texts = {{"config.json", gpt2_config_json(stored, ids)},
                               {"generation_config.json", generation_config_json(ids)}}};
  if (!options_.tie_weights) layout.rows["lm_head.weight"] = stored.vocabulary;
  if (options_.has_bias) return layout;
  for (const auto& [name, shape] : gpt2_tensors(options_))
    if (name.ends_with(".bias")) layout.zeros.push_back({concat("transformer.", name), shape});
  return layout;
}

}  // namespace lockstep
