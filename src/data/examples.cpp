// SPDX-License-Identifier: Apache-2.0
#include "data/examples.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/encode.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int deepest = 64;

Json parsed(std::string_view line, const std::string& place) {
  decode_utf8(line, place);
  // An example is never nested deeper.
  const auto watch = [&](int depth, Json::parse_event_t, const Json&) {
    require(depth < deepest, place, ": nested more than ", deepest, " deep");
    return true;
  };
  try {
    return Json::parse(line, watch);
  } catch (const Json::parse_error& problem) {
    throw UserError(concat(place, ": invalid JSON at byte ", problem.byte, " of the line"));
  } catch (const Json::out_of_range&) {
    throw UserError(concat(place, ": a number beyond the range of double precision"));
  }
}

/// Returns the text under a key of the object on a line.
std::string text_of(const Json& object, const char* key, bool may_be_empty, const std::string& place) {
  const auto found = object.find(key);
  require(found != object.end(), place, ": \"", key, "\" is missing");
  require(found->is_string(), place, ": \"", key, "\" is not a string");
  const auto text = found->get<std::string>();
  require(may_be_empty || !text.empty(), place, ": \"", key, "\" is empty");
  return text;
}

Example example_of(std::string_view line, const std::string& place) {
  const Json object = parsed(line, place);
  require(object.is_object(), place, ": not an object with \"prompt\" and \"answer\", or \"text\"");
  if (!object.contains("text"))
    return {.prompt = text_of(object, "prompt", true, place),
            .answer = text_of(object, "answer", false, place)};
  require(!object.contains("prompt") && !object.contains("answer"), place,
          ": \"text\" cannot be combined with \"prompt\" or \"answer\"; a document has \"text\" alone");
  return {.prompt = "", .answer = text_of(object, "text", false, place)};
}

}  // namespace

bool is_jsonl(std::string_view name) { return name.ends_with(".jsonl"); }

std::vector<Example> read_examples(std::string_view text, const std::string& source) {
  std::vector<Example> examples;
  int64_t number = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    examples.push_back(example_of(line, concat(source, ":", number)));
    examples.back().line = number;
  }
  require(!examples.empty(), source, " has no examples");
  return examples;
}

EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source, int threads) {
  std::vector<TextPiece> pieces;
  for (const Example& example : examples)
    for (const std::string* text : {&example.prompt, &example.answer})
      pieces.push_back({*text, concat(source, ":", example.line)});
  const auto encoded = encode_pieces(tokenizer, pieces, threads);
  EncodedExamples all;
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto& prompt = encoded[2 * i];
    const auto& answer = encoded[2 * i + 1];
    all.ids.insert(all.ids.end(), prompt.begin(), prompt.end());
    all.marks.push_back(std::ssize(all.ids));
    all.ids.insert(all.ids.end(), answer.begin(), answer.end());
    if (const auto end = tokenizer.end_of_text()) all.ids.push_back(*end);
    all.marks.push_back(std::ssize(all.ids));
  }
  return all;
}

ExampleBlocks::ExampleBlocks(Tokens tokens, std::vector<int64_t> marks, int64_t first_token,
                             const Options& options)
    : tokens_(std::move(tokens)), options_(options) {
  expect(options.block_size > 0, "blocks of ", options.block_size, " tokens");
  expect(marks.size() % 2 == 0 && (marks.empty() || marks.back() <= tokens_.size()), "marks beyond ",
         tokens_.size(), " tokens");
  int64_t begin = first_token;
  for (size_t i = 0; i < marks.size(); i += 2) {
    const int64_t end = marks[i + 1], counted = options.counts_prompts ? begin : marks[i];
    const size_t before = pieces_.size();
    // Pieces overlap by one token. So each token but the example's first is a target of some piece.
    for (int64_t piece = begin; piece == begin || piece + 1 < end; piece += options.block_size)
      add({piece, std::min(end, piece + options.block_size + 1), counted});
    empty_ += pieces_.size() == before ? 1 : 0;
    cut_ += end - begin - 1 > options.block_size ? 1 : 0;
    begin = end;
  }
  if (std::ssize(pieces_) > first_piece_.back()) first_piece_.push_back(std::ssize(pieces_));
}

void ExampleBlocks::add(const Piece& piece) {
  if (piece.counted_targets() <= 0) return;
  const bool is_full = used_ + piece.targets() > options_.block_size || !options_.packs;
  if (is_full && std::ssize(pieces_) > first_piece_.back()) {
    first_piece_.push_back(std::ssize(pieces_));
    used_ = 0;
  }
  pieces_.push_back(piece);
  // The piece's last token is included if there is room, so that the next example sees where it ended.
  used_ = std::min(options_.block_size, used_ + piece.end - piece.begin);
}

void ExampleBlocks::fetch(int64_t index, void* input, void* target) const {
  expect(index >= 0 && index < size(), "sample ", index, " of ", size());
  auto* const inputs = static_cast<int32_t*>(input);
  auto* const targets = static_cast<int32_t*>(target);
  std::fill_n(inputs, options_.block_size, options_.padding);
  std::fill_n(targets, options_.block_size, -1);
  int64_t used = 0;
  for (int64_t p = first_piece_[static_cast<size_t>(index)]; p < first_piece_[static_cast<size_t>(index) + 1];
       ++p) {
    const Piece& piece = pieces_[static_cast<size_t>(p)];
    const int64_t first = std::max(piece.begin + 1, piece.counted);
    tokens_.copy(first, piece.end - first, targets + used + first - piece.begin - 1);
    const int64_t shown = std::min(piece.end - piece.begin, options_.block_size - used);
    tokens_.copy(piece.begin, shown, inputs + used);
    used += shown;
  }
}

int64_t ExampleBlocks::weight(int64_t index) const {
  expect(index >= 0 && index < size(), "sample ", index, " of ", size());
  int64_t counted = 0;
  for (int64_t p = first_piece_[static_cast<size_t>(index)]; p < first_piece_[static_cast<size_t>(index) + 1];
       ++p)
    counted += pieces_[static_cast<size_t>(p)].counted_targets();
  return counted;
}

ExampleSplit split_examples(const Tokens& tokens, const std::vector<int64_t>& marks, double train_split,
                            const ExampleBlocks::Options& options) {
  const int64_t examples = std::ssize(marks) / 2;
  const auto border = static_cast<int64_t>(std::floor(train_split * static_cast<double>(examples)));
  const auto blocks = [&](const char* part, int64_t begin, int64_t end) {
    std::vector<int64_t> of_part(marks.begin() + 2 * begin, marks.begin() + 2 * end);
    const int64_t first = begin == 0 ? 0 : marks[static_cast<size_t>(2 * begin - 1)];
    auto made = std::make_shared<const ExampleBlocks>(tokens, std::move(of_part), first, options);
    require(made->size() > 0, "data.train_split = ", train_split, " leaves ", counted(end - begin, "example"),
            " of ", examples, " for ", part, ", and none with a target; change it or add examples");
    return made;
  };
  return {.train = blocks("training", 0, border), .validation = blocks("validation", border, examples)};
}

}  // namespace lockstep
