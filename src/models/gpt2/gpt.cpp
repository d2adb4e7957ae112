// SPDX-License-Identifier: Apache-2.0
#include "models/gpt2/gpt.h"

#include <algorithm>
#include <functional>

#include "models/gpt2/gpt2_block.h"
#include "models/gpt2/hugging_face.h"
#include "models/gpt2/initial_weights.h"
#include "tensor/checkpoint.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

Gpt::Options validated(Gpt::Options options) {
  if (options.rows == 0) options.rows = options.vocabulary;
  expect(options.vocabulary > 0 && options.block_size > 0 && options.layers > 0 && options.width > 0,
         "a GPT needs a vocabulary, a block size, layers and a width");
  expect(options.rows >= options.vocabulary, options.rows, " rows are too few for ", options.vocabulary,
         " tokens");
  expect(options.heads > 0 && options.width % options.heads == 0, options.heads,
         " heads do not divide the width ", options.width);
  const Recompute& recompute = options.recompute;
  expect(recompute.what != Recompute::What::segments ||
             (recompute.segments >= 1 && recompute.segments <= options.layers),
         recompute.segments, " recompute segments for ", options.layers,
         " blocks; at least 1 and at most one per block are possible");
  return options;
}

/// The tokens of all parts, one part after the other.
struct Tokens {
  std::vector<int32_t> ids, positions, places;
  std::vector<int32_t> last;  ///< index of each part's last token

  Tokens(std::span<const NextTokens> parts, int64_t most) {
    for (const NextTokens& part : parts) {
      const int64_t end = part.past + static_cast<int64_t>(part.ids.size());
      expect(!part.ids.empty() && part.past >= 0 && end <= most, part.ids.size(), " new tokens after ",
             part.past, " of text ", part.text, ": at least 1 is needed, and at most ", most, " in total");
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      for (int64_t position = part.past; position < end; ++position) {
        positions.push_back(static_cast<int32_t>(position));
        places.insert(places.end(), {static_cast<int32_t>(part.text), static_cast<int32_t>(position)});
      }
      last.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
  }
  int64_t count() const { return static_cast<int64_t>(ids.size()); }
};

}  // namespace

Gpt::Gpt(const Options& options, uint64_t seed)
    : options_(validated(options)),
      tokens_(options_.rows, options.width, options.dtype),
      positions_(options.block_size, options.width, options.dtype),
      final_norm_(options.width, options.has_bias, options.dtype) {
  add_part("transformer.wte", tokens_);
  add_part("transformer.wpe", positions_);
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    blocks_.push_back(std::make_unique<Gpt2Block>(options, static_cast<uint32_t>(layer)));
    add_part(concat("transformer.h.", layer), *blocks_.back());
  }
  add_part("transformer.ln_f", final_norm_);
  if (!options.tie_weights) {
    head_ = std::make_unique<Linear>(options.width, options_.rows, false, options.dtype);
    add_part("lm_head", *head_);
  }
  initialize_like_gpt2(parameters(), options.layers, seed);
  if (options_.rows == options.vocabulary) return;
  // Finite in every dtype, and exp() of it is 0.
  std::vector<float> shares(static_cast<size_t>(options_.rows), -30000.0f);
  std::fill_n(shares.begin(), options.vocabulary, 0.0f);
  unused_rows_ = from_values(shares, {options_.rows});
}

Tensor Gpt::hidden(const Tensor& ids, const Context& context) const {
  expect(ids.shape().rank() == 2 && ids.shape()[1] <= options_.block_size, "ids are ", ids.shape(),
         "; they must be [batch, time] with time at most the block size ", options_.block_size);
  Tensor x = positions_.add(embedding(ids, tokens_.weight()));
  if (context.training) x = dropout(x, options_.dropout, context.key(0));
  return final_norm_(through_blocks(x, context));
}

Tensor Gpt::through_blocks(const Tensor& x, const Context& context) const {
  const auto& [what, segments] = options_.recompute;
  Tensor y = x;
  if (!context.training || (what != Recompute::What::block && what != Recompute::What::segments)) {
    for (const auto& block : blocks_) y = (*block)(y, context);
    return y;
  }
  std::vector<std::function<Tensor(const Tensor&)>> blocks;
  for (const auto& block : blocks_)
    blocks.emplace_back([&block = *block, context](const Tensor& in) { return block(in, context); });
  if (what == Recompute::What::segments) return checkpoint_sequential(blocks, segments, x);
  for (const auto& block : blocks)
    y = checkpoint([block](const std::vector<Tensor>& inputs) { return block(inputs[0]); }, {y});
  return y;
}

Tensor Gpt::operator()(const Tensor& ids, const Context& context) const {
  return linear(hidden(ids, context), head());
}

Tensor Gpt::loss(const Tensor& ids, const Tensor& targets, const Context& context,
                 int64_t rows_at_once) const {
  const Tensor x = hidden(ids, context);
  const Tensor bias = unused_rows_ ? convert(unused_rows_, x.dtype()) : Tensor();
  return linear_cross_entropy(x, head(), targets, rows_at_once, -1, context.loss_scale, bias);
}

Tensor Gpt::next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const {
  const NoGrad no_grad;
  const Tokens tokens(parts, std::min(options_.block_size, cache.capacity));
  const auto count = static_cast<int64_t>(parts.size());
  cache.places = from_values(tokens.places, {tokens.count(), 2});
  const Tensor ids = from_values(tokens.ids, {tokens.count()});
  const Tensor positions = from_values(tokens.positions, {tokens.count()});
  Tensor x = positions_.add_at(embedding(ids, tokens_.weight()), positions);
  x = through_blocks(x, {.cache = &cache});
  if (tokens.count() > count) x = embedding(from_values(tokens.last, {count}), x);  // selects rows
  return linear(final_norm_(x), head());
}

double Gpt::flops_per_token(int64_t time) const {
  double weights = static_cast<double>(options_.vocabulary * options_.width);
  for (const NamedTensor& parameter : parameters())
    if (parameter.tensor.shape().rank() == 2 && parameter.name.find(".h.") != std::string::npos)
      weights += static_cast<double>(parameter.tensor.size());
  return 6.0 * weights + 12.0 * static_cast<double>(options_.layers * options_.width * time);
}

int64_t Gpt::used_parameters() const {
  // Padding rows of the tables only make matmuls faster.
  const int64_t tables = options_.tie_weights ? 1 : 2;
  return count_parameters(parameters()) - tables * (options_.rows - options_.vocabulary) * options_.width;
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
