// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/nn/decoder.h"

namespace lockstep {

/// A decoder-only transformer with GPT-2's structure (Radford et al. 2019): learned positions, pre-norm
/// blocks and a final norm. Parameters have the names and layouts of Hugging Face's GPT-2. Weights inside
/// blocks are [in, out]. The head's weight is [out, in].
class Gpt final : public Decoder {
 public:
  struct Options {
    int64_t vocabulary = 0;
    int64_t rows = 0;  ///< size of the token table; rows beyond the vocabulary are unused; 0: vocabulary
    int64_t block_size = 0;  ///< the longest context
    int64_t layers = 0;
    int64_t heads = 0;  ///< divides width
    int64_t width = 0;
    double dropout = 0.0;     ///< after the embedding, on attention weights and on residual branches
    bool has_bias = true;     ///< in Linear and LayerNorm
    bool tie_weights = true;  ///< the head is the token embedding
    Gelu activation = Gelu::tanh;
    DType dtype = DType::f32;
    Recompute recompute = {};
  };

  /// Initializes parameters as GPT-2 does. The values are a function of the seed and of each parameter's
  /// position. Throws Error for sizes that do not fit together.
  Gpt(const Options& options, uint64_t seed);

  ModelLayout layout(const TokenIds& ids) const override;
  const Options& options() const { return options_; }

 private:
  Options options_;
};

}  // namespace lockstep
