// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "data/corpus.h"

namespace lockstep {

/// A part of a document, in memory.
struct TextWindow {
  std::string_view text;
  const Document& document;
  int64_t begin = 0;     ///< bytes of the document before it
  bool is_last = false;  ///< the document ends with it
};

/// Returns the whole lines at the beginning of a window.
std::string_view whole_lines(const TextWindow& window);

/// Reads the documents of a corpus in windows of about `window_bytes`. use(window) returns how many bytes it
/// has used, and the next window begins behind them. If it has used none, the next window is larger. It must
/// use something of a last window. Returns a hash of the text and of the positions where its documents end.
uint64_t read_corpus(const Corpus& corpus, int64_t window_bytes,
                     const std::function<size_t(const TextWindow&)>& use);

/// The results of reading a corpus once.
struct CorpusFacts {
  uint64_t hash = 0;  ///< the result of read_corpus()
  int64_t bytes = 0;
  int64_t count = 0;     ///< number of characters, or of examples
  std::string alphabet;  ///< the characters that occur, in ascending order
};

/// Reads a corpus and checks it. Throws UserError that names the file and the place if a document is empty or
/// not UTF-8, or if an example is wrong.
CorpusFacts measure(const Corpus& corpus);

/// Returns the corpus in words: "Shakespeare, 1,115,394 characters from <path>".
std::string describe(const Corpus& corpus, const CorpusFacts& facts);

}  // namespace lockstep
