// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// A separate text and its name in errors.
struct TextPiece {
  std::string_view text;
  std::string source;
};

/// Returns the ids of each piece, encoded by `threads` threads. Their number does not affect the result.
/// Throws the exception of the first piece that cannot be encoded.
std::vector<std::vector<int32_t>> encode_pieces(const Tokenizer& tokenizer,
                                                const std::vector<TextPiece>& pieces, int threads);

/// Returns the ids of a corpus, encoded by `threads` threads. Their number does not affect the result. A
/// single text is encoded in parts. Each of several documents is followed by the end-of-text token if the
/// tokenizer has one.
std::vector<int32_t> encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, int threads);

}  // namespace lockstep
