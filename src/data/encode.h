// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// A text on its own, and what errors call it.
struct TextPiece {
  std::string_view text;
  std::string source;
};

/// The ids of each piece, by so many threads; they do not show in the result. Throws what the first piece
/// that cannot be encoded throws.
std::vector<std::vector<int32_t>> encode_pieces(const Tokenizer& tokenizer,
                                                const std::vector<TextPiece>& pieces, int threads);

/// The ids of a corpus, by threads in the same sense: one text in parts, or several documents, each followed
/// by the end-of-text token if the tokenizer has one.
std::vector<int32_t> encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, int threads);

}  // namespace lockstep
