// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/examples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/chat_template.h"

namespace lockstep {

EncodedExamples encode_examples(const Tokenizer& tokenizer, const std::vector<Example>& examples,
                                const std::string& source, const ChatTemplate* chat) {
  EncodedExamples all;
  for (const Example& example : examples) {
    if (example.kind == Example::Kind::conversation) {
      require(chat != nullptr, option_name("dataset"), ": ", source, " has changed since it was read: line ",
              example.line, " is a conversation now; start again");
      encode_conversation(tokenizer, *chat, example, source, all);
      continue;
    }
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

Marks::Marks(const std::vector<int64_t>& marks) : bytes_(marks), answers_(std::ssize(marks) / 2) {
  expect(marks.size() % 2 == 0, marks.size(), " marks");
}

Marks::Marks(Bytes bytes, int64_t begin, int64_t answers)
    : bytes_(std::move(bytes)), begin_(begin), answers_(answers) {}

Marks::Answers Marks::read(int64_t first, int64_t count) const {
  std::vector<int64_t> marks(static_cast<size_t>(2 * count + 1), first_token_);
  const auto wanted = std::span(marks).subspan(first == 0 ? 1 : 0);
  bytes_.read(begin_ + 8 * (2 * first - (first == 0 ? 0 : 1)), std::as_writable_bytes(wanted));
  const auto position = [](int64_t mark) { return mark < 0 ? ~mark : mark; };
  Answers answers{.begin = position(marks[0]), .all = {}};
  for (size_t i = 1; i + 1 < marks.size(); i += 2)
    answers.all.push_back({marks[i], position(marks[i + 1]), marks[i + 1] < 0});
  return answers;
}

template <class Use>
void Marks::visit(int64_t first, Use use) const {
  for (int64_t at = first, count = 8; at < answers_; at += count) {
    count = std::min({2 * count, int64_t{4096}, answers_ - at});
    const Answers part = read(at, count);
    int64_t begin = part.begin;
    for (size_t i = 0; i < part.all.size(); ++i) {
      if (!use(at + static_cast<int64_t>(i), part.all[i], begin)) return;
      begin = part.all[i].end;
    }
  }
}

int64_t Marks::examples_before(int64_t answer) const {
  int64_t examples = 0;
  visit(0, [&](int64_t index, const Answer& one, int64_t) {
    if (index < answer && !one.continues) ++examples;
    return index + 1 < answer;
  });
  return examples;
}

int64_t Marks::answer_of(int64_t example) const {
  int64_t place = 0;
  visit(0, [&](int64_t index, const Answer& answer, int64_t) {
    if (example == 0) return false;
    if (!answer.continues) --example;
    place = index + 1;
    return true;
  });
  return place;
}

Marks Marks::slice(int64_t begin, int64_t end) const {
  Marks part(bytes_, begin_ + 16 * begin, end - begin);
  part.first_token_ = read(begin, 0).begin;
  return part;
}

ExampleBlocks::ExampleBlocks(Tokens tokens, Marks marks, const Options& options)
    : tokens_(std::move(tokens)), marks_(std::move(marks)), options_(options) {
  expect(options.block_size > 0, "blocks of ", options.block_size, " tokens");
  visit_examples(0, [&](int64_t index, int64_t, const Piece& example) {
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
  blocks_.push_back({marks_.answers(), 0});
}

template <class Use>
void ExampleBlocks::visit_examples(int64_t first, Use use) const {
  int64_t begin = 0, first_answer = first;
  std::vector<Range> counted;
  marks_.visit(first, [&](int64_t index, const Marks::Answer& answer, int64_t begin_of_tokens) {
    if (index == first_answer) begin = begin_of_tokens;
    counted.push_back({answer.begin, answer.end});
    if (answer.continues) return true;
    if (options_.counts_prompts) counted = {{begin, answer.end}};
    const bool goes_on = use(first_answer, index + 1, Piece{begin, answer.end, counted});
    first_answer = index + 1;
    counted.clear();
    return goes_on;
  });
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
  visit_examples(first.example, [&](int64_t number, int64_t next, const Piece& example) {
    visit_pieces(example, number == first.example ? first.token : example.begin, [&](const Piece& piece) {
      if (Place{number, piece.begin} < end) use(piece);
    });
    return Place{next, 0} < end;
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
    for (const Range& range : piece.counted) {
      const Range wanted = piece.targets_in(range);
      if (wanted.begin == wanted.end) continue;
      tokens_.copy(wanted.begin, wanted.end - wanted.begin, targets + used + wanted.begin - piece.begin - 1);
    }
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
  const int64_t answers = marks.answers(), examples = marks.examples_before(answers);
  const auto border = static_cast<int64_t>(std::floor(train_split * static_cast<double>(examples)));
  const int64_t border_answer = marks.answer_of(border);
  const auto blocks = [&](const char* part, int64_t count, const Marks& of_part) {
    auto made = std::make_shared<const ExampleBlocks>(tokens, of_part, options);
    require(made->size() > 0, option_name("train_split"), " = ", train_split, " leaves ",
            counted(count, "example"), " of ", examples, " for ", part,
            ", and none with a target; change it or add examples");
    return made;
  };
  return {.train = blocks("training", border, marks.slice(0, border_answer)),
          .validation = train_split < 1
                            ? blocks("validation", examples - border, marks.slice(border_answer, answers))
                            : nullptr};
}

}  // namespace lockstep
