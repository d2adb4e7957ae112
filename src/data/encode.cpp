// SPDX-License-Identifier: Apache-2.0
#include "data/encode.h"

#include <algorithm>
#include <exception>

#include "core/thread_pool.h"
#include "tokenizer/encode_in_parallel.h"

namespace lockstep {

std::vector<std::vector<int32_t>> encode_pieces(const Tokenizer& tokenizer,
                                                const std::vector<TextPiece>& pieces, int threads) {
  std::vector<std::vector<int32_t>> ids(pieces.size());
  std::vector<std::exception_ptr> failures(pieces.size());
  auto encode = [&](int64_t i) {
    const auto piece = static_cast<size_t>(i);
    try {
      ids[piece] = tokenizer.encode(pieces[piece].text, pieces[piece].source);
    } catch (...) {
      failures[piece] = std::current_exception();
    }
  };
  const int64_t useful = std::min<int64_t>(std::max(threads, 1), std::max<int64_t>(1, std::ssize(pieces)));
  ThreadPool(static_cast<int>(useful)).run(std::ssize(pieces), encode);
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return ids;
}

std::vector<int32_t> encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, int threads) {
  if (corpus.ends.empty()) {
    ThreadPool pool(std::max(threads, 1));
    return encode_in_parallel(tokenizer, corpus.text, corpus.source, pool);
  }
  std::vector<TextPiece> documents;
  size_t begin = 0;
  for (const size_t end : corpus.ends) {
    documents.push_back({std::string_view(corpus.text).substr(begin, end - begin), corpus.source});
    begin = end;
  }
  std::vector<int32_t> ids;
  for (std::vector<int32_t>& document : encode_pieces(tokenizer, documents, threads)) {
    ids.insert(ids.end(), document.begin(), document.end());
    if (const auto end = tokenizer.end_of_text()) ids.push_back(*end);
    document = {};
  }
  return ids;
}

}  // namespace lockstep
