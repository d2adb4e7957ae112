// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/thread_pool.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/example_rows.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// A part of a document, in memory.
struct TextWindow {
  std::string_view text;
  const Document& document;
  int64_t begin = 0;     ///< bytes of the document before it
  bool is_last = false;  ///< the document ends with it
};

/// Reads the documents of a corpus in windows of about `window_bytes`. use(window) returns how many bytes it
/// has used, and the next window begins behind them. If it has used none, the next window is larger. It must
/// use something of a last window. Returns a hash of the text and of the positions where its documents end.
uint64_t read_corpus(const Corpus& corpus, int64_t window_bytes,
                     const std::function<size_t(const TextWindow&)>& use);

/// The results of reading a corpus once.
struct CorpusFacts {
  uint64_t hash = 0;  ///< the result of read_corpus()
  int64_t bytes = 0;
  int64_t count = 0;                         ///< number of characters, or of examples
  int64_t answers = 0;                       ///< number of answers of examples: EncodedExamples::marks
  Example::Kind kind = Example::Kind::text;  ///< of all examples
  std::string alphabet;                      ///< the characters that occur, in ascending order
};

/// Reads a corpus and checks it. Throws UserError that names the file and the place if a document is empty or
/// not UTF-8, or if an example is wrong.
CorpusFacts measure(const Corpus& corpus);

/// Returns the corpus in words: "Shakespeare, 1,115,394 characters from <path>".
std::string describe(const Corpus& corpus, const CorpusFacts& facts);

/// Receives the next ids of a text, and the marks of the examples that they are: EncodedExamples::marks.
using TakeIds = std::function<void(std::span<const int32_t> ids, std::span<const int64_t> marks)>;

/// Reads a corpus and calls take() with part after part of its ids, in order. All threads of a pool encode
/// some parts at a time, so that only some MiB of text and ids are in memory. Their number does not affect
/// the result. The end-of-text token follows each of several documents and each example if the tokenizer has
/// one. Returns the hash of the text: CorpusFacts::hash.
uint64_t encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, detail::ThreadPool& pool,
                       const TakeIds& take);

}  // namespace lockstep
