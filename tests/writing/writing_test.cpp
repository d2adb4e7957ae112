// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/tensor/create.h"
#include "lockstep/writing/write_texts.h"

namespace lockstep {
namespace {

/// Returns the pieces that WrittenText passes on if its bytes arrive one by one.
std::vector<std::string> pieces_of(const std::string& bytes, std::vector<std::string> stops = {}) {
  std::vector<std::string> pieces;
  WrittenText text(std::move(stops), [&](std::string_view piece) { pieces.emplace_back(piece); });
  bool goes_on = true;
  for (size_t i = 0; goes_on && i < bytes.size(); ++i)
    goes_on = text.add(std::string_view(bytes).substr(i, 1));
  text.finish();
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  EXPECT_EQ(text.text(), all);
  return pieces;
}

TEST(WrittenText, APieceEndsBetweenCharacters) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("aé€😀"), (Pieces{"a", "é", "€", "😀"}));
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(pieces_of("a\xFF"), (Pieces{"a", mark}));
  EXPECT_EQ(pieces_of("\xE2\x82"), (Pieces{mark})) << "cut at the end";
  EXPECT_EQ(pieces_of("\xE2\x82z"), (Pieces{mark + "z"}));
  EXPECT_EQ(pieces_of("\xC0\x80"), (Pieces{mark, mark})) << "overlong";
  EXPECT_EQ(pieces_of("\xED\xA0\x80"), (Pieces{mark + mark, mark})) << "a surrogate";
  EXPECT_EQ(pieces_of("\xF4\x90\x80\x80"), (Pieces{mark + mark, mark, mark})) << "beyond Unicode";
}

TEST(WrittenText, StopTextsAreFoundAcrossTokensAndNeverShown) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("one\nUser: two", {"\nUser:"}), (Pieces{"o", "n", "e"}));
  EXPECT_EQ(pieces_of("a\n\nb\n", {"\nUser:"}), (Pieces{"a", "\n", "\nb", "\n"}))
      << "first held back, then printed";
  EXPECT_EQ(pieces_of("aaab!c", {"aab!"}), (Pieces{"a"})) << "a stop text that begins again within itself";
  EXPECT_EQ(pieces_of("a€b", {"€"}), (Pieces{"a"}));
  WrittenText whole({"later", "now"}, {});
  EXPECT_FALSE(whole.add("here now or later"));
  EXPECT_EQ(whole.text(), "here ") << "the earliest stop text in the text, not in the list";
  EXPECT_THROW(WrittenText({""}), UserError);
}

/// A tokenizer whose ids are bytes. Id 256 is the end of a text.
class Bytes : public Tokenizer {
 public:
  std::string to_json() const override { return ""; }
  size_t safe_cut(std::string_view text, size_t near) const override { return std::min(near, text.size()); }
  int64_t vocabulary_size() const override { return 257; }
  std::vector<int32_t> encode(std::string_view text, std::string_view source) const override {
    require(!text.starts_with('?'), source, " begins with ?");
    std::vector<int32_t> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string bytes;
    for (const int32_t id : ids) bytes += static_cast<char>(id);
    return bytes;
  }
  std::optional<int32_t> end_of_text() const override { return 256; }
  std::vector<int32_t> beginning() const override { return {'>'}; }
};

/// A model that repeats one line. The likeliest byte is the line's next one, and after '.' the end of the
/// text.
class Parrot : public TextModel {
 public:
  int64_t context() const override { return 4; }
  void start(int64_t /*texts*/, int64_t /*tokens*/) override {}
  Tensor next_logits(std::span<const NextTokens> parts) override {
    std::vector<float> logits(parts.size() * 300);
    for (size_t row = 0; row < parts.size(); ++row) {
      const size_t at = line.find(static_cast<char>(parts[row].ids.back()));
      const bool is_over = parts[row].ids.back() == '.';
      const auto next = static_cast<unsigned char>(line[(at + 1) % line.size()]);
      logits[row * 300 + (is_over ? 256 : next)] = 1.0F;
      logits[row * 300 + 299] = 2.0F;  // an id that no tokenizer knows
    }
    return from_values(logits, {std::ssize(parts), 300});
  }

 private:
  const std::string line =
      ">\xE2\x82\xAC"
      "abc.";
};

TEST(WriteTexts, EndsAtLengthAtAStopTextAndAtTheEndOfText) {
  Parrot parrot;
  const GenerateOptions greedy{.tokens = 20, .temperature = 0.0};
  std::vector<TextPrompt> prompts(4, {.options = greedy});
  std::string streamed;
  prompts[0].sink = [&](std::string_view piece) { streamed += piece; };
  prompts[1].options.tokens = 2;
  prompts[2].stop_texts = {"bc"};
  prompts[3].text = "ab";
  const auto texts = write_texts(parrot, Bytes(), prompts);
  EXPECT_EQ(texts[0].text, "€abc.");
  EXPECT_EQ(streamed, texts[0].text);
  EXPECT_STREQ(name(texts[0].finish), "end_of_text");
  EXPECT_EQ(texts[1].text, "\xEF\xBF\xBD") << "two of the three bytes of a character";
  EXPECT_STREQ(name(texts[1].finish), "length");
  EXPECT_EQ(texts[2].text, "€a");
  EXPECT_EQ(texts[2].ids.size(), 6U) << "the ids of the stop text count too";
  EXPECT_STREQ(name(texts[2].finish), "stop");
  EXPECT_EQ(texts[3].text, "c.");
  EXPECT_EQ(texts[3].prompt_tokens, 2);
}

TEST(PromptLines, TakeTheirOptionsFromTheLineElseFromTheProgram) {
  const TextPrompt defaults{.options = {.tokens = 9, .top_k = 3, .seed = 5}, .stop_texts = {"!"}};
  const auto lines = read_prompt_lines(
      "{\"prompt\": \"a\"}\r\n\n"
      "{\"prompt\": \"b\", \"id\": [1, \"x\"], \"max_new_tokens\": 4, \"temperature\": 0, \"top_k\": 0, "
      "\"top_p\": 0.5, "
      "\"repetition_penalty\": 1.5, \"stop\": \"x\"}\n"
      "{\"prompt\": \"c\", \"seed\": 7, \"stop\": []}",
      "in.jsonl", defaults);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].prompt.options.tokens, 9);
  EXPECT_EQ(lines[0].prompt.stop_texts, std::vector<std::string>{"!"});
  const GenerateOptions& second = lines[1].prompt.options;
  EXPECT_EQ(second.tokens, 4);
  EXPECT_EQ(second.temperature, 0.0);
  EXPECT_EQ(second.top_k, 0);
  EXPECT_EQ(second.top_p, 0.5);
  EXPECT_EQ(second.repetition_penalty, 1.5);
  EXPECT_EQ(second.seed, 5U);
  EXPECT_EQ(second.prompt, 1U) << "equal prompts of one seed get other texts";
  EXPECT_EQ(lines[1].prompt.stop_texts, std::vector<std::string>{"x"});
  EXPECT_EQ(lines[2].prompt.options.seed, 7U);
  EXPECT_EQ(lines[2].prompt.options.prompt, 0U) << "a line with a seed may stand anywhere";
  EXPECT_TRUE(lines[2].prompt.stop_texts.empty());

  const auto answer = nlohmann::json::parse(
      to_json_line(lines[1], {.text = "€\n", .ids = {1, 2}, .prompt_tokens = 3, .finish = Finish::stopped}));
  EXPECT_EQ(answer["id"], (nlohmann::json{1, "x"}));
  EXPECT_EQ(answer["prompt"], "b");
  EXPECT_EQ(answer["text"], "€\n");
  EXPECT_EQ(answer["tokens"], (nlohmann::json{1, 2}));
  EXPECT_EQ(answer["prompt_tokens"], 3);
  EXPECT_EQ(answer["finish_reason"], "stop");
}

TEST(PromptLines, BadOnesAreRefusedByLineAndKey) {
  for (const auto& [line, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{\"prompt\": \"a\"", " is not valid JSON: it ends too early"},
           {"{\"prompt\": \"\xFF\"}", " is not valid JSON: not UTF-8 at byte 13"},
           {"{\"prompt\": \"a\", \"top_p\": NaN}", " is not valid JSON: NaN at byte 26 is no number of JSON"},
           {"{\"prompt\": \"\\udead.\"}", " is not valid JSON: a lone surrogate \\udead at byte"},
           {std::string("{\"prompt\": \"\0\"}", 15), " is not valid JSON: a NUL at byte 13"},
           {"[\"a\"]", " is [\"a\"]: it must be an object"},
           {"{\"prompt\": \"a\", \"prompt\": \"b\"}", ": \"prompt\" appears twice"},
           {"[1]", " is [1]: it must be an object"},
           {"{}", ": there is no prompt"},
           {"{\"prompt\": 3}", ": prompt is 3"},
           {"{\"prompt\": \"a\", \"topk\": 3}", ": the key topk is unknown"},
           {"{\"prompt\": \"a\", \"top_k\": 1.5}", ": top_k is 1.5"},
           {"{\"prompt\": \"a\", \"top_k\": -1}", ": top_k is -1"},
           {"{\"prompt\": \"a\", \"max_new_tokens\": 18446744073709551615}",
            ": max_new_tokens is 18446744073709551615"},
           {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", ": temperature is \"hot\""},
           {"{\"prompt\": \"a\", \"top_p\": 0}", ": top_p is 0"},
           {"{\"prompt\": \"a\", \"seed\": -1}", ": seed is -1"},
           {"{\"prompt\": \"a\", \"stop\": [1]}", ": stop[0] is 1"},
           {"{\"prompt\": \"a\", \"stop\": [\"\"]}", ": stop is [\"\"]"},
           {"{\"prompt\": \"a\", \"temperature\": 1e999}", " has a number that is too large"},
           {"{\"prompt\": \"a\", \"id\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}",
            " is nested more than 64 levels deep"}}) {
    try {
      read_prompt_lines("{\"prompt\": \"a\"}\n\n" + line + "\n", "in.jsonl", {});
      FAIL() << line << " was taken";
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("in.jsonl, line 3" + expected), 0U) << error.what();
    }
  }
  Parrot parrot;
  const auto lines = read_prompt_lines("{\"prompt\": \"?\"}", "in.jsonl", {});
  EXPECT_THROW(write_texts(parrot, Bytes(), {lines[0].prompt}), UserError);
}

}  // namespace
}  // namespace lockstep
