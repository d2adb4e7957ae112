// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/examples.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/kernels/random.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

TEST(ReadExamples, PromptsWithAnswersAndTexts) {
  const auto examples = read_examples(
      "{\"prompt\": \"2+2=\", \"answer\": \"4\", \"id\": 7}\n\n  {\"text\":\"\\u00fc\\n\"}\r\n"
      "{\"answer\":\"a\",\"prompt\":\"\"}",
      "x.jsonl");
  ASSERT_EQ(examples.size(), 3U);
  EXPECT_EQ(examples[0].prompt, "2+2=");
  EXPECT_EQ(examples[0].answer, "4");
  EXPECT_EQ(examples[1].prompt, "");
  EXPECT_EQ(examples[1].answer, "ü\n");
  EXPECT_EQ(examples[1].line, 3);
  EXPECT_EQ(examples[2].answer, "a");
  EXPECT_EQ(read_examples("\n{\"text\":\"a\"}", "x.jsonl", {}, 7).at(0).line, 8)
      << "lines of the middle of a file";
}

TEST(ReadExamples, NameTheLineAndWhatIsWrong) {
  const std::string good = "{\"text\": \"a\"}\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"text\": \"a\"", " is not valid JSON: it ends too early"},
      {"{\"text\": \"a\", \"loss\": -Infinity}", "Infinity at byte 24 is no number of JSON"},
      {"{\"text\": \"a\tb\"}", "a control character at byte 12"},
      {"{\"text\": \"\\uDBFF\\u0041\"}", "a lone surrogate \\uDBFF at byte"},
      {"{\"text\": \"\\u0041\\udc00\"}", "a lone surrogate \\udc00 at byte"},
      {"{\"text\": \"\\ud83dx\"}", "a lone surrogate \\ud83d at byte"},
      {"{\"text\": \"\\ud83d\\n\"}", "a lone surrogate \\ud83d at byte"},
      {"{\"text\": \"\\uD834\\uDD1E\x02\"}", " is not valid JSON: a control character at byte 23"},
      {"{\"text\": \"\\uD834\\uDD1E\\q\"}", " is not valid JSON: damaged at byte"},
      {"{\"text\": \"\\\\ud834\x02\"}", " is not valid JSON: a control character at byte"},
      {"{\"text\": 'a'}", "damaged at byte 10"},
      {"prompt: a", " is not valid JSON: damaged at byte 1"},
      {"[\"text\"]", "must be an object"},
      {"7", "must be an object"},
      {"{}", "has no keys: an example has \"prompt\" and \"answer\", \"text\", \"messages\", or"},
      {"{\"prompt\": \"a\"}", "has the key \"prompt\": an example has"},
      {R"({"instruction": "a", "out\nput": "b"})", R"(has the keys "instruction", "out\nput": an)"},
      {"{\"prompt\": 1, \"answer\": \"a\"}", "prompt is 1: it must be a text"},
      {"{\"prompt\": \"a\", \"answer\": \"\"}", "answer is empty"},
      {"{\"prompt\": \"a\", \"answer\": null}", "answer is missing"},
      {"{\"text\": \"\"}", "text is empty"},
      {"{\"text\": \"a\", \"answer\": \"b\"}", "\"text\" cannot be combined"},
      {"{\"text\": \"\xff\"}", "byte"},
      {"{\"text\": \"a\", \"loss\": 1e999}", " has a number that is too large"},
      {"{\"text\": " + std::string(100'000, '['), " is nested more than 64 levels deep"},
      {"{\"text\": \"a\", \"more\": " + std::string(64, '[') + std::string(64, ']') + "}", " is nested more"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "\"text\" appears twice in one object"},
      {std::string("{\"text\": \"a\0b\"}", 14), "byte 11 is a NUL"}};
  for (const auto& [line, complaint] : bad)
    expect_contains(
        user_error([&, line = line] { read_examples(good + good + line + "\n" + good, "x.jsonl"); }),
        {"x.jsonl:3", complaint});
  const std::string deep = "{\"text\": \"a\", \"more\": " + std::string(63, '[') + std::string(63, ']') + "}";
  EXPECT_EQ(read_examples(deep, "x.jsonl").size(), 1U) << "what is not asked for may be anything";
  for (const char* empty : {"", "\n", " \n\t\r\n"}) EXPECT_TRUE(read_examples(empty, "x.jsonl").empty());
}

// A mutated file is either read or refused with a message that names it.
TEST(ReadExamples, AnyMutationIsReadOrRefusedByName) {
  const std::string whole = "{\"prompt\": \"a\\u00fc\", \"answer\": \"b\"}\n{\"text\": \"c\\n\"}\n";
  int refused = 0;
  for (uint32_t i = 0; i < 10000; ++i) {
    std::string text = whole;
    const auto random = philox(1, {i, 0, 0, 0});
    for (uint32_t change = 0; change <= random[0] % 3; ++change) {
      const auto place = philox(2, {i, change, 0, 0});
      const size_t at = place[0] % text.size();
      if (place[1] % 3 == 0)
        text.erase(at, 1 + place[2] % 4);
      else if (place[1] % 3 == 1)
        text.insert(at, 1, static_cast<char>(place[2] % 256));
      else
        text[at] = static_cast<char>(place[2] % 256);
      if (text.empty()) text = "{";
    }
    const std::string said = user_error([&] {
      for (const Example& example : read_examples(text, "x.jsonl")) EXPECT_FALSE(example.answer.empty());
    });
    if (said == "(nothing was thrown)") continue;
    ++refused;
    EXPECT_EQ(said.rfind("x.jsonl", 0), 0U) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 10000);
}

/// A character tokenizer with an end-of-text token.
class WithEnd : public CharTokenizer {
 public:
  using CharTokenizer::CharTokenizer;
  std::optional<int32_t> end_of_text() const override { return 99; }
};

TEST(EncodeExamples, EndOfTextFollowsEachIfThereIsOne) {
  const std::vector<Example> examples = {{"ab", "c", 1}, {"", "de", 2}};
  const EncodedExamples with = encode_examples(WithEnd("abcde"), examples, "x");
  EXPECT_EQ(with.ids, (std::vector<int32_t>{0, 1, 2, 99, 3, 4, 99}));
  EXPECT_EQ(with.marks, (std::vector<int64_t>{2, 4, 4, 7}));
  const EncodedExamples without = encode_examples(CharTokenizer("abcde"), examples, "x");
  EXPECT_EQ(without.ids, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(without.marks, (std::vector<int64_t>{2, 3, 3, 5}));
  expect_contains(user_error([&] { encode_examples(WithEnd("abc"), examples, "x.jsonl"); }), {"x.jsonl:2"});
}

struct Block {
  std::vector<int32_t> input, target;
  bool operator==(const Block&) const = default;
};

std::vector<Block> blocks_of(const ExampleBlocks& blocks) {
  std::vector<Block> all;
  for (int64_t i = 0; i < blocks.size(); ++i) {
    const auto size = static_cast<size_t>(blocks.input().shape.elements());
    all.push_back({std::vector<int32_t>(size), std::vector<int32_t>(size)});
    blocks.fetch(i, all.back().input.data(), all.back().target.data());
    EXPECT_EQ(blocks.counted_targets(i),
              std::ssize(all.back().target) - std::ranges::count(all.back().target, -1));
    EXPECT_GT(blocks.counted_targets(i), 0);
  }
  return all;
}

// Ids equal their positions, so a block shows which ids it has. Example 0-3 has an answer from 2 on, and
// example 4-6 from 5 on. Example 7-9 is a text without a prompt.
const std::vector<int32_t> ten_ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
const std::vector<int64_t> three_marks{2, 4, 5, 7, 7, 10};

TEST(ExampleBlocks, ArePackedInOrderAndOnlyAnswersCount) {
  const ExampleBlocks blocks(ten_ids, three_marks, {.block_size = 6, .padding = 55});
  EXPECT_EQ(blocks_of(blocks), (std::vector<Block>{{{0, 1, 2, 3, 4, 5}, {-1, 2, 3, -1, 5, 6}},
                                                   {{7, 8, 9, 55, 55, 55}, {8, 9, -1, -1, -1, -1}}}));
  EXPECT_EQ(blocks.cut_examples(), 0);
}

TEST(ExampleBlocks, UnpackedEachHasOne) {
  const ExampleBlocks blocks(ten_ids, three_marks, {.block_size = 4, .padding = 55, .packs = false});
  EXPECT_EQ(blocks_of(blocks), (std::vector<Block>{{{0, 1, 2, 3}, {-1, 2, 3, -1}},
                                                   {{4, 5, 6, 55}, {5, 6, -1, -1}},
                                                   {{7, 8, 9, 55}, {8, 9, -1, -1}}}));
}

TEST(ExampleBlocks, CountPromptsIfTheyAreWanted) {
  const ExampleBlocks blocks(ten_ids, three_marks, {.block_size = 12, .padding = 55, .counts_prompts = true});
  EXPECT_EQ(blocks_of(blocks), (std::vector<Block>{{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 55, 55},
                                                    {1, 2, 3, -1, 5, 6, -1, 8, 9, -1, -1, -1}}}));
}

// Ten tokens, of which the last four are an answer. They are cut into blocks of two targets. Blocks with
// targets of the prompt alone are left out. In the second data set, one example has a single token, so
// nothing can be learned from it.
TEST(ExampleBlocks, OnlyWhatIsLongerThanABlockIsCut) {
  const ExampleBlocks blocks(ten_ids, {{6, 10}}, {.block_size = 2, .padding = 55});
  EXPECT_EQ(blocks_of(blocks), (std::vector<Block>{{{4, 5}, {-1, 6}}, {{6, 7}, {7, 8}}, {{8, 9}, {9, -1}}}));
  EXPECT_EQ(blocks.cut_examples(), 1);
  EXPECT_EQ(blocks.empty_examples(), 0);
  const ExampleBlocks of_one(ten_ids, {{0, 1, 1, 4}}, {.block_size = 3, .padding = 55});
  EXPECT_EQ(blocks_of(of_one), (std::vector<Block>{{{1, 2, 3}, {2, 3, -1}}}));
  EXPECT_EQ(of_one.empty_examples(), 1);
}

TEST(SplitExamples, TheFirstTrainAndTheOthersValidate) {
  const Split<ExampleBlocks> split =
      split_examples(ten_ids, three_marks, 0.7, {.block_size = 6, .padding = 0});
  EXPECT_EQ(blocks_of(*split.train), (std::vector<Block>{{{0, 1, 2, 3, 4, 5}, {-1, 2, 3, -1, 5, 6}}}));
  EXPECT_EQ(blocks_of(*split.validation), (std::vector<Block>{{{7, 8, 9, 0, 0, 0}, {8, 9, -1, -1, -1, -1}}}));
  const Split<ExampleBlocks> all = split_examples(ten_ids, three_marks, 1.0, {.block_size = 10});
  EXPECT_EQ(all.train->size(), 1);
  EXPECT_EQ(all.validation, nullptr);
  expect_contains(user_error([&] { split_examples(ten_ids, three_marks, 0.3, {.block_size = 6}); }),
                  {"train_split = 0.3", "0 examples of 3 for training"});
}

}  // namespace
}  // namespace lockstep
