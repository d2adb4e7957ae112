// SPDX-License-Identifier: Apache-2.0
#include "data/read_corpus.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "core/text.h"
#include "core/wording.h"
#include "data/bytes.h"
#include "data/examples.h"
#include "data/file_kind.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

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
          " has JSON lines of examples, which no folder of texts can hold; name this file in ",
          option_name("dataset"));
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

/// Adds the examples of a window, whose first line has this number. Returns the bytes that it has used.
size_t add_examples(const TextWindow& window, int64_t first_line, CorpusFacts& facts, Alphabet& alphabet) {
  const std::string_view lines = whole_lines(window);
  for (const Example& example : read_examples(lines, window.document.name, first_line)) {
    std::string text = example.prompt + example.answer;
    std::erase(text, '\0');  // some tokenizers can encode it
    alphabet.add(text, window.document.name);
    ++facts.count;
  }
  return lines.size();
}

}  // namespace

std::string_view whole_lines(const TextWindow& window) {
  return window.is_last ? window.text : window.text.substr(0, window.text.rfind('\n') + 1);
}

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
  int64_t line = 1;
  if (corpus.kind == Corpus::Kind::documents) std::ranges::for_each(corpus.documents, require_text);
  facts.hash = read_corpus(corpus, int64_t{1} << 20, [&](const TextWindow& window) {
    const size_t used =
        has_examples ? add_examples(window, line, facts, alphabet) : add_characters(window, facts, alphabet);
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
  return concat(count, " from ", corpus.source);
}

}  // namespace lockstep
