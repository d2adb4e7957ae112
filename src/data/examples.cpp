// SPDX-License-Identifier: Apache-2.0
#include "data/examples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "json/json_field.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

using Field = JsonField<nlohmann::json>;

constexpr size_t most_line_bytes = size_t{256} << 20;
constexpr const char* accepted_keys = "\"prompt\" and \"answer\", or \"text\"";

std::string text_of(const Field& field) {
  std::string text = field.text();
  if (text.empty()) field.refuse("is empty");
  return text;
}

/// Returns the keys of an object for an error.
std::string keys_of(const Field& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.json().items()) keys.push_back(nlohmann::json(key).dump());
  return keys.empty() ? "no keys"
                      : concat(keys.size() == 1 ? "the key " : "the keys ", shortened(joined(keys)));
}

Example example_of(std::string_view line, const std::string& place) {
  decode_utf8(line, place);  // also refuses a NUL
  const Field object(line, place, most_line_bytes);
  object.require_is(object.json().is_object(), "an object with ", accepted_keys);
  const bool is_text = object.has("text"), has_prompt = object.has("prompt"),
             has_answer = object.has("answer");
  require(is_text || (has_prompt && has_answer), place, " has ", keys_of(object), ": an example has ",
          accepted_keys);
  if (!is_text) return {.prompt = object["prompt"].text(), .answer = text_of(object["answer"])};
  require(!has_prompt && !has_answer, place,
          ": \"text\" cannot be combined with \"prompt\" or \"answer\"; a document has \"text\" alone");
  return {.prompt = "", .answer = text_of(object["text"])};
}

}  // namespace

std::vector<Example> read_examples(std::string_view lines, const std::string& source, int64_t first_line) {
  std::vector<Example> examples;
  std::istringstream stream{std::string(lines)};
  int64_t number = first_line;
  for (std::string line; std::getline(stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    examples.push_back(example_of(line, concat(source, ":", number)));
    examples.back().line = number;
  }
  return examples;
}

EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source) {
  EncodedExamples all;
  for (const Example& example : examples) {
    for (const std::string* text : {&example.prompt, &example.answer}) {
      const std::vector<int32_t> ids = tokenizer.encode(*text, concat(source, ":", example.line));
      all.ids.insert(all.ids.end(), ids.begin(), ids.end());
      all.marks.push_back(std::ssize(all.ids));
    }
    if (const auto end = tokenizer.end_of_text()) all.ids.push_back(*end);
    all.marks.back() = std::ssize(all.ids);
  }
  return all;
}

Marks::Marks(const std::vector<int64_t>& marks) : bytes_(marks), examples_(std::ssize(marks) / 2) {
  expect(marks.size() % 2 == 0, marks.size(), " marks");
}

Marks::Marks(Bytes bytes, int64_t begin, int64_t examples)
    : bytes_(std::move(bytes)), begin_(begin), examples_(examples) {}

std::vector<int64_t> Marks::read(int64_t first, int64_t count) const {
  std::vector<int64_t> marks(static_cast<size_t>(2 * count + 1), first_token_);
  const auto wanted = std::span(marks).subspan(first == 0 ? 1 : 0);
  bytes_.read(begin_ + 8 * (2 * first - (first == 0 ? 0 : 1)), std::as_writable_bytes(wanted));
  return marks;
}

Marks Marks::slice(int64_t begin, int64_t end) const {
  Marks part(bytes_, begin_ + 16 * begin, end - begin);
  part.first_token_ = read(begin, 0)[0];
  return part;
}

ExampleBlocks::ExampleBlocks(Tokens tokens, Marks marks, const Options& options)
    : tokens_(std::move(tokens)), marks_(std::move(marks)), options_(options) {
  expect(options.block_size > 0, "blocks of ", options.block_size, " tokens");
  visit_examples(0, [&](int64_t index, const Piece& example) {
    expect(example.end <= tokens_.size(), "marks beyond ", tokens_.size(), " tokens");
    bool is_empty = true;
    visit_pieces(example, example.begin, [&](const Piece& piece) {
      add({index, piece.begin}, piece);
      is_empty = false;
    });
    empty_ += is_empty ? 1 : 0;
    cut_ += example.targets() > options_.block_size ? 1 : 0;
    return true;
  });
  blocks_.push_back({marks_.examples(), 0});
}

template <class Use>
void ExampleBlocks::visit_examples(int64_t first, Use use) const {
  for (int64_t begin = first, count = 8; begin < marks_.examples(); begin += count) {
    count = std::min({2 * count, int64_t{4096}, marks_.examples() - begin});
    const std::vector<int64_t> marks = marks_.read(begin, count);
    for (size_t i = 0; i + 1 < marks.size(); i += 2) {
      const int64_t counted = options_.counts_prompts ? marks[i] : marks[i + 1];
      if (!use(begin + static_cast<int64_t>(i / 2), Piece{marks[i], marks[i + 2], counted})) return;
    }
  }
}

template <class Use>
void ExampleBlocks::visit_pieces(const Piece& example, int64_t token, Use use) const {
  // Pieces overlap by one token. So each token but the example's first is a target of some piece.
  for (; token == example.begin || token + 1 < example.end; token += options_.block_size) {
    const Piece piece{token, std::min(example.end, token + options_.block_size + 1), example.counted};
    if (piece.counted_targets() > 0) use(piece);
  }
}

template <class Use>
void ExampleBlocks::visit_block(int64_t index, Use use) const {
  expect(index >= 0 && index < size(), "sample ", index, " of ", size());
  const Place first = blocks_[static_cast<size_t>(index)], end = blocks_[static_cast<size_t>(index) + 1];
  visit_examples(first.example, [&](int64_t number, const Piece& example) {
    visit_pieces(example, number == first.example ? first.token : example.begin, [&](const Piece& piece) {
      if (Place{number, piece.begin} < end) use(piece);
    });
    return Place{number + 1, 0} < end;
  });
}

void ExampleBlocks::add(const Place& place, const Piece& piece) {
  const bool is_full = used_ + piece.targets() > options_.block_size || !options_.packs;
  if (is_full || blocks_.empty()) {
    blocks_.push_back(place);
    counted_targets_.push_back(0);
    used_ = 0;
  }
  counted_targets_.back() += static_cast<int32_t>(piece.counted_targets());
  // The piece's last token is included if there is room, so that the next example sees where it ended.
  used_ = std::min(options_.block_size, used_ + piece.end - piece.begin);
}

void ExampleBlocks::fetch(int64_t index, void* input, void* target) const {
  auto* const inputs = static_cast<int32_t*>(input);
  auto* const targets = static_cast<int32_t*>(target);
  std::fill_n(inputs, options_.block_size, options_.padding);
  std::fill_n(targets, options_.block_size, -1);
  int64_t used = 0;
  visit_block(index, [&](const Piece& piece) {
    const int64_t first = std::max(piece.begin + 1, piece.counted);
    tokens_.copy(first, piece.end - first, targets + used + first - piece.begin - 1);
    const int64_t shown = std::min(piece.end - piece.begin, options_.block_size - used);
    tokens_.copy(piece.begin, shown, inputs + used);
    used += shown;
  });
}

std::optional<int64_t> ExampleBlocks::counted_targets(int64_t index) const {
  expect(index >= 0 && index < size(), "sample ", index, " of ", size());
  return counted_targets_[static_cast<size_t>(index)];
}

Split<ExampleBlocks> split_examples(const Tokens& tokens, const Marks& marks, double train_split,
                                    const ExampleBlocks::Options& options) {
  const auto border = static_cast<int64_t>(std::floor(train_split * static_cast<double>(marks.examples())));
  const auto blocks = [&](const char* part, int64_t begin, int64_t end) {
    auto made = std::make_shared<const ExampleBlocks>(tokens, marks.slice(begin, end), options);
    require(made->size() > 0, option_name("train_split"), " = ", train_split, " leaves ",
            counted(end - begin, "example"), " of ", marks.examples(), " for ", part,
            ", and none with a target; change it or add examples");
    return made;
  };
  return {.train = blocks("training", 0, border),
          .validation = train_split < 1 ? blocks("validation", border, marks.examples()) : nullptr};
}

}  // namespace lockstep
