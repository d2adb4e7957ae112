// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/decoder.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/tensor/checkpoint.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

Decoder::Sizes validated(Decoder::Sizes sizes, size_t blocks) {
  if (sizes.rows == 0) sizes.rows = sizes.vocabulary;
  expect(sizes.vocabulary > 0 && sizes.block_size > 0 && blocks > 0 && sizes.width > 0,
         "a decoder needs a vocabulary, a block size, blocks and a width");
  expect(sizes.rows >= sizes.vocabulary, sizes.rows, " rows are too few for ", sizes.vocabulary, " tokens");
  const auto& [what, segments] = sizes.recompute;
  expect(what != Recompute::What::segments || (segments >= 1 && segments <= static_cast<int64_t>(blocks)),
         segments, " recompute segments for ", blocks,
         " blocks; at least 1 and at most one per block are possible");
  return sizes;
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

Decoder::Decoder(const Sizes& sizes, Parts parts, const Names& names)
    : sizes_(validated(sizes, parts.blocks.size())),
      names_(names),
      tokens_(sizes_.rows, sizes_.width, sizes_.dtype),
      parts_(std::move(parts)) {
  add_part(names.tokens, tokens_);
  add_part(names.positions, *parts_.positions);
  for (size_t i = 0; i < parts_.blocks.size(); ++i) add_part(concat(names.blocks, i), *parts_.blocks[i]);
  add_part(names.final_norm, *parts_.final_norm);
  if (!sizes_.tie_weights) {
    head_ = std::make_unique<Linear>(sizes_.width, sizes_.rows, false, sizes_.dtype);
    add_part(names.head, *head_);
  }
  if (sizes_.rows == sizes_.vocabulary) return;
  // Finite in every dtype, and exp() of it is 0.
  std::vector<float> shares(static_cast<size_t>(sizes_.rows), -30000.0f);
  std::fill_n(shares.begin(), sizes_.vocabulary, 0.0f);
  unused_rows_ = from_values(shares, {sizes_.rows});
}

Tensor Decoder::hidden(const Tensor& ids, const Context& context) const {
  expect(ids.shape().rank() == 2 && ids.shape()[1] <= sizes_.block_size, "ids are ", ids.shape(),
         "; they must be [batch, time] with time at most the block size ", sizes_.block_size);
  Context with_angles = context;
  with_angles.angles = parts_.positions->angles(ids.shape()[1]);
  Tensor x = parts_.positions->add(embedding(ids, tokens_.weight()));
  if (context.training) x = dropout(x, sizes_.dropout, context.key(0));
  return (*parts_.final_norm)(through_blocks(x, with_angles));
}

Tensor Decoder::through_blocks(const Tensor& x, const Context& context) const {
  const auto& [what, segments] = sizes_.recompute;
  Tensor y = x;
  if (!context.training || (what != Recompute::What::block && what != Recompute::What::segments)) {
    for (const auto& block : parts_.blocks) y = (*block)(y, context);
    return y;
  }
  std::vector<std::function<Tensor(const Tensor&)>> blocks;
  for (const auto& block : parts_.blocks)
    blocks.emplace_back([&block = *block, context](const Tensor& in) { return block(in, context); });
  if (what == Recompute::What::segments) return checkpoint_sequential(blocks, segments, x);
  for (const auto& block : blocks)
    y = checkpoint([block](const std::vector<Tensor>& inputs) { return block(inputs[0]); }, {y});
  return y;
}

Tensor Decoder::operator()(const Tensor& ids, const Context& context) const {
  return linear(hidden(ids, context), head());
}

Tensor Decoder::loss(const Tensor& ids, const Tensor& targets, const Context& context,
                     int64_t rows_at_once) const {
  const Tensor x = hidden(ids, context);
  return linear_cross_entropy(x, head(), targets, rows_at_once, -1, context.loss_scale, logit_bias(x.dtype()),
                              context.inverse_count);
}

Tensor Decoder::token_losses(const Tensor& ids, const Tensor& targets, int64_t rows_at_once) const {
  const NoGrad no_grad;
  const Tensor x = hidden(ids, {});
  return linear_cross_entropies(x, head(), targets, rows_at_once, -1, logit_bias(x.dtype()));
}

Tensor Decoder::next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const {
  const NoGrad no_grad;
  const Tokens tokens(parts, std::min(sizes_.block_size, cache.capacity));
  const auto count = static_cast<int64_t>(parts.size());
  cache.places = from_values(tokens.places, {tokens.count(), 2});
  const Tensor ids = from_values(tokens.ids, {tokens.count()});
  const Tensor positions = from_values(tokens.positions, {tokens.count()});
  Tensor x = parts_.positions->add_at(embedding(ids, tokens_.weight()), positions);
  x = through_blocks(x, {.cache = &cache, .angles = parts_.positions->angles_at(positions)});
  if (tokens.count() > count) x = embedding(from_values(tokens.last, {count}), x);  // selects rows
  return linear((*parts_.final_norm)(x), head());
}

double Decoder::flops_per_token(int64_t time) const {
  double weights = static_cast<double>(sizes_.vocabulary * sizes_.width);
  for (const auto& block : parts_.blocks)
    for (const NamedTensor& parameter : block->parameters())
      if (parameter.tensor.shape().rank() == 2) weights += static_cast<double>(parameter.tensor.size());
  const auto layers = static_cast<int64_t>(parts_.blocks.size());
  return 6.0 * weights + 12.0 * static_cast<double>(layers * sizes_.attention_width * time);
}

int64_t Decoder::used_parameters() const {
  // Padding rows of the tables only make matmuls faster.
  const int64_t tables = sizes_.tie_weights ? 1 : 2;
  return count_parameters(parameters()) - tables * (sizes_.rows - sizes_.vocabulary) * sizes_.width;
}

ModelLayout Decoder::layout(const TokenIds& ids) const {
  const int64_t rows = stored_vocabulary(ids);
  ModelLayout layout{.rows = {{concat(names_.tokens, ".weight"), rows}}};
  if (!sizes_.tie_weights) layout.rows[concat(names_.head, ".weight")] = rows;
  return layout;
}

}  // namespace lockstep
