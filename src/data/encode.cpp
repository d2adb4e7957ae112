// SPDX-License-Identifier: Apache-2.0
#include "data/encode.h"

#include <algorithm>
#include <exception>

#include "core/error.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

/// What one thread encodes at a time.
constexpr size_t piece_bytes = size_t{1} << 20;

struct Document {
  std::string_view text;
  size_t pieces = 0;
};

void add_pieces(const Tokenizer& tokenizer, const Corpus& corpus, Document& document,
                std::vector<TextPiece>& pieces) {
  for (size_t begin = 0, end = 0; begin < document.text.size(); begin = end) {
    const size_t near = std::min(document.text.size(), begin + piece_bytes);
    end = near == document.text.size() ? near : tokenizer.safe_cut(document.text, near);
    pieces.push_back({document.text.substr(begin, end - begin), corpus.source});
    ++document.pieces;
  }
}

}  // namespace

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
  const std::string_view text = corpus.text;
  std::vector<Document> documents;
  std::vector<TextPiece> pieces;
  size_t begin = 0;
  for (const size_t end : corpus.ends.empty() ? std::vector{text.size()} : corpus.ends) {
    documents.push_back({.text = text.substr(begin, end - begin)});
    add_pieces(tokenizer, corpus, documents.back(), pieces);
    begin = end;
  }
  std::vector<std::vector<int32_t>> encoded;
  try {
    encoded = encode_pieces(tokenizer, pieces, threads);
  } catch (const UserError&) {
    // The place that is named counts from the beginning of the document.
    for (const Document& document : documents) tokenizer.encode(document.text, corpus.source);
    throw;
  }
  std::vector<int32_t> ids;
  size_t count = documents.size();
  for (const auto& piece : encoded) count += piece.size();
  ids.reserve(count);
  auto piece = encoded.begin();
  for (const Document& document : documents) {
    for (size_t i = 0; i < document.pieces; ++i, ++piece) {
      ids.insert(ids.end(), piece->begin(), piece->end());
      *piece = {};
    }
    if (!corpus.ends.empty() && tokenizer.end_of_text()) ids.push_back(*tokenizer.end_of_text());
  }
  return ids;
}

}  // namespace lockstep
