// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/read_corpus.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/examples.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

/// Returns the whole lines at the beginning of a window.
std::string_view whole_lines(const TextWindow& window) {
  return window.is_last ? window.text : window.text.substr(0, window.text.rfind('\n') + 1);
}

/// 1115394 -> "1,115,394".
std::string with_thousands(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

/// Reads a document in windows. Returns its size.
int64_t read_document(const Document& document, int64_t window_bytes, Hasher& hasher,
                      const std::function<size_t(const TextWindow&)>& use) {
  const Bytes bytes = document.bytes();
  require(bytes.size() > 0, option_name("dataset"), ": ", document.name, " is empty");
  std::string text;  // of the window, which begins at `begin`
  int64_t begin = 0, wanted = window_bytes;
  while (begin < bytes.size()) {
    const auto known = std::ssize(text);
    const int64_t size = std::min(std::max(known, wanted), bytes.size() - begin);
    text.resize(static_cast<size_t>(size));
    bytes.read(begin + known, std::as_writable_bytes(std::span(text).subspan(static_cast<size_t>(known))));
    const size_t used = use({text, document, begin, begin + size == bytes.size()});
    hasher.add(std::as_bytes(std::span(text).first(used)));
    text.erase(0, used);
    begin += static_cast<int64_t>(used);
    wanted = used > 0 ? window_bytes : 2 * wanted;
  }
  return bytes.size();
}

/// Throws UserError for a file of examples in a folder of texts.
void require_text(const Document& document) {
  require(!has_examples(document.name, document.bytes()), option_name("dataset"), ": ", document.name,
          " has JSON lines of examples, which no folder of texts can hold; name this file itself");
}

/// Adds the characters of a window. Returns the bytes that it has used: all except a last character that may
/// be cut.
size_t add_characters(const TextWindow& window, CorpusFacts& facts, Alphabet& alphabet) {
  const size_t size = window.text.size();
  const size_t end = window.is_last ? size : next_character(window.text, size - std::min<size_t>(size, 4));
  facts.count += alphabet.add(window.text.substr(0, end),
                              concat(option_name("dataset"), ": ", window.document.name), window.begin);
  return end;
}

/// The examples of a file as they are counted, and the line of the first.
struct ExampleCount {
  CorpusFacts& facts;
  Alphabet& alphabet;
  int64_t first_line = 0;

  void add(const Example& example, const std::string& source) {
    if (facts.count++ == 0) {
      facts.kind = example.kind;
      first_line = example.line;
    }
    constexpr std::array names = {"a text or a prompt and its answer", "an instruction", "a conversation"};
    require(example.kind == facts.kind, source, ":", example.line, " is ",
            names[static_cast<size_t>(example.kind)], ", but line ", first_line, " is ",
            names[static_cast<size_t>(facts.kind)], "; a file has examples of one kind, so divide it");
    const auto count = std::ranges::count(example.messages, ChatMessage::Role::assistant, &ChatMessage::role);
    facts.answers += 1 + count;
    std::string text = example.prompt + example.answer;
    for (const ChatMessage& message : example.messages) text += message.content;
    std::erase(text, '\0');  // some tokenizers can encode it
    alphabet.add(text, source);
  }
};

/// Adds the examples of a window, whose first line has this number. Returns the bytes that it has used.
size_t add_examples(const TextWindow& window, const Columns& columns, int64_t first_line,
                    ExampleCount& count) {
  const std::string_view lines = whole_lines(window);
  for (const Example& example : read_examples(lines, window.document.name, columns, first_line))
    count.add(example, window.document.name);
  return lines.size();
}

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
  PartEncoder(const Tokenizer& tokenizer, const Corpus& corpus, detail::ThreadPool& pool, const TakeIds& take)
      : tokenizer_(tokenizer),
        corpus_(corpus),
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
      for (int64_t& mark : encoded[i].marks) mark += mark < 0 ? -ids_ : ids_;
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
    if (corpus_.kind == Corpus::Kind::examples)
      return encode_examples(tokenizer_, read_examples(part.text, source, corpus_.columns, part.first_line),
                             source, corpus_.chat ? &*corpus_.chat : nullptr);
    EncodedExamples encoded{.ids = tokenizer_.encode(part.text, source), .marks = {}};
    const auto end = tokenizer_.end_of_text();
    if (corpus_.kind == Corpus::Kind::documents && part.ends_document && end) encoded.ids.push_back(*end);
    return encoded;
  }

  const Tokenizer& tokenizer_;
  const Corpus& corpus_;
  const TakeIds& take_;
  detail::ThreadPool& pool_;
  int64_t batch_bytes_;
  std::vector<Part> parts_;
  int64_t bytes_ = 0;  ///< of parts_
  int64_t ids_ = 0;    ///< number of ids that were taken
};

}  // namespace

uint64_t read_corpus(const Corpus& corpus, int64_t window_bytes,
                     const std::function<size_t(const TextWindow&)>& use) {
  Hasher hasher;
  std::vector<size_t> ends;
  size_t end = 0;
  for (const Document& document : corpus.documents) {
    end += static_cast<size_t>(read_document(document, window_bytes, hasher, use));
    ends.push_back(end);
  }
  if (corpus.kind == Corpus::Kind::documents) hasher.add(std::as_bytes(std::span(ends)));
  return hasher.value();
}

CorpusFacts measure(const Corpus& corpus) {
  const bool has_examples = corpus.kind == Corpus::Kind::examples;
  CorpusFacts facts;
  Alphabet alphabet;
  ExampleCount examples{facts, alphabet};
  int64_t line = 1;
  if (corpus.kind == Corpus::Kind::documents) std::ranges::for_each(corpus.documents, require_text);
  facts.hash = read_corpus(corpus, int64_t{1} << 20, [&](const TextWindow& window) {
    const size_t used = has_examples ? add_examples(window, corpus.columns, line, examples)
                                     : add_characters(window, facts, alphabet);
    line += std::ranges::count(window.text.substr(0, used), '\n');
    facts.bytes += static_cast<int64_t>(used);
    return used;
  });
  require(facts.count > 0, option_name("dataset"), ": ", corpus.source, " has no examples");
  facts.alphabet = alphabet.text();
  return facts;
}

std::string describe(const Corpus& corpus, const CorpusFacts& facts) {
  const bool has_examples = corpus.kind == Corpus::Kind::examples;
  const std::string count = has_examples
                                ? counted(facts.count, "example")
                                : concat(corpus.title, ", ", with_thousands(facts.count), " characters");
  return concat(count, " from ", corpus.source, corpus.chat ? concat(", in ", corpus.chat->text()) : "");
}

uint64_t encode_corpus(const Tokenizer& tokenizer, const Corpus& corpus, detail::ThreadPool& pool,
                       const TakeIds& take) {
  PartEncoder encoder(tokenizer, corpus, pool, take);
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
