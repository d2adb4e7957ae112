// SPDX-License-Identifier: Apache-2.0
#include "data/encode.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "core/thread_pool.h"
#include "data/examples.h"

namespace lockstep {
namespace {

constexpr int64_t most_part_bytes = int64_t{1} << 18;
constexpr int64_t most_batch_bytes = int64_t{16} << 20;
constexpr int64_t bytes_around_part = 256;  // a batch of short documents takes no more memory than another

/// A part of a document that is encoded by itself.
struct Part {
  std::string text;
  const Document& document;
  int64_t first_line = 1;
  bool ends_document = false;
};

/// Encodes parts with all threads of a pool, as many at a time as a batch has room for.
class PartEncoder {
 public:
  PartEncoder(const Tokenizer& tokenizer, Corpus::Kind kind, ThreadPool& pool, const TakeIds& take)
      : tokenizer_(tokenizer),
        kind_(kind),
        take_(take),
        pool_(pool),
        batch_bytes_(std::min(16 * pool.size() * most_part_bytes, most_batch_bytes)) {}

  /// Returns the size of parts that keeps all threads busy.
  int64_t part_bytes() const {
    return std::clamp(batch_bytes_ / (2 * pool_.size()), most_part_bytes / 4, most_part_bytes);
  }
  void add(Part part) {
    bytes_ += std::ssize(part.text) + bytes_around_part;
    parts_.push_back(std::move(part));
    if (bytes_ >= batch_bytes_) encode_batch();
  }
  /// Encodes what has been added.
  void encode_batch() {
    std::vector<EncodedExamples> encoded(parts_.size());
    std::vector<std::exception_ptr> failures(parts_.size());
    pool_.run(std::ssize(parts_), [&](int64_t i) {
      const auto part = static_cast<size_t>(i);
      try {
        encoded[part] = encode(parts_[part]);
      } catch (...) {
        failures[part] = std::current_exception();
      }
    });
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (failures[i]) std::rethrow_exception(failures[i]);
      for (int64_t& mark : encoded[i].marks) mark += ids_;
      ids_ += std::ssize(encoded[i].ids);
      take_(encoded[i].ids, encoded[i].marks);
      encoded[i] = {};
    }
    parts_.clear();
    bytes_ = 0;
  }

 private:
  EncodedExamples encode(const Part& part) const {
    const std::string& source = part.document.name;
    if (kind_ == Corpus::Kind::examples)
      return encode_examples(tokenizer_, read_examples(part.text, source, part.first_line), source);
    EncodedExamples encoded{.ids = tokenizer_.encode(part.text, source), .marks = {}};
    const auto end = tokenizer_.end_of_text();
    if (kind_ == Corpus::Kind::documents && part.ends_document && end) encoded.ids.push_back(*end);
    return encoded;
  }

  const Tokenizer& tokenizer_;
  Corpus::Kind kind_;
  const TakeIds& take_;
  ThreadPool& pool_;
  int64_t batch_bytes_;
  std::vector<Part> parts_;
  int64_t bytes_ = 0;  ///< of parts_
  int64_t ids_ = 0;    ///< number of ids that were taken
};

}  // namespace

uint64_t encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, ThreadPool& pool,
                       const TakeIds& take) {
  PartEncoder encoder(tokenizer, corpus.kind, pool, take);
  const int64_t part_bytes = encoder.part_bytes();
  const auto end_of_part = [&](const TextWindow& window) {
    if (corpus.kind == Corpus::Kind::examples) return whole_lines(window).size();
    const size_t size = window.text.size(), near = std::min(size, static_cast<size_t>(part_bytes));
    if (window.is_last && near == size) return size;
    // Without a cut in this window, a larger one is read.
    const size_t end = tokenizer.safe_cut(window.text, near);
    return end == size && !window.is_last ? 0 : end;
  };
  int64_t line = 1;
  const uint64_t hash = read_corpus(corpus, part_bytes + (int64_t{1} << 16), [&](const TextWindow& window) {
    const size_t end = end_of_part(window);
    const std::string_view text = window.text.substr(0, end);
    if (end > 0)
      encoder.add({std::string(text), window.document, line, window.is_last && end == window.text.size()});
    line += std::ranges::count(text, '\n');
    return end;
  });
  encoder.encode_batch();
  return hash;
}

}  // namespace lockstep
