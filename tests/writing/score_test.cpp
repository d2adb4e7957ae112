// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numbers>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/tensor/create.h"
#include "lockstep/writing/score_text.h"
#include "support/user_error.h"

namespace lockstep::score_test {
namespace {

constexpr int64_t context = 8, vocabulary = 100;

/// Returns the logit of a token after another one.
float logit(int64_t before, int64_t id) { return static_cast<float>((7 * before + 3 * id) % 11) / 2.0f; }

double log_probability(int64_t before, int64_t id) {
  double sum = 0.0;
  for (int64_t other = 0; other < vocabulary; ++other)
    sum += std::exp(static_cast<double>(logit(before, other)));
  return static_cast<double>(logit(before, id)) - std::log(sum);
}

/// A model whose tokens depend on the one before.
class Bigram final : public LanguageModel {
 public:
  Tensor token_losses(const Tensor& ids, const Tensor& targets, int64_t) const override {
    EXPECT_LT(ids.shape()[1], context) << "no target needs the last token";
    const std::vector<double> before = to_doubles(ids), wanted = to_doubles(targets);
    std::vector<float> losses;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double log_share =
          log_probability(static_cast<int64_t>(before[i]), static_cast<int64_t>(wanted[i]));
      losses.push_back(wanted[i] < 0 ? 0.0f : static_cast<float>(-log_share));
    }
    return from_values(losses, targets.shape());
  }
  Tensor operator()(const Tensor&, const lockstep::Context&) const override { return {}; }
  Tensor loss(const Tensor&, const Tensor&, const lockstep::Context&, int64_t) const override { return {}; }
  Tensor next_logits(std::span<const NextTokens>, KeyValueCache&) const override { return {}; }
  int64_t vocabulary() const override { return score_test::vocabulary; }
  int64_t context_length() const override { return score_test::context; }
  double flops_per_token(int64_t) const override { return 0.0; }
  int64_t used_parameters() const override { return 0; }
  ModelLayout layout(const TokenIds&) const override { return {}; }
};

/// A tokenizer whose tokens have as many bytes as the last digit of their id. Token 99 ends a text, and token
/// 98 is special, too.
class Digits final : public Tokenizer {
 public:
  std::string to_json() const override { return ""; }
  int64_t vocabulary_size() const override { return 300; }
  std::vector<int32_t> encode(std::string_view, std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += std::string(static_cast<size_t>(id % 10), id == 5 ? '\xFF' : 'x');
    return text;
  }
  size_t safe_cut(std::string_view text, size_t) const override { return text.size(); }
  std::optional<int32_t> end_of_text() const override { return 99; }
  std::optional<int32_t> special_token(std::string_view content) const override {
    return content == "xxxxxxxx" ? std::optional(98) : std::nullopt;
  }
  std::vector<int32_t> beginning() const override { return {}; }
};

std::vector<int32_t> some_ids(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * i + 3 * i) % vocabulary));
  return ids;
}

/// The tokens that a score has counted.
struct Counted {
  TextScore score;
  std::vector<ScoredToken> tokens;
};

Counted count_in(const EncodedText& text, const ScoreOptions& options = {}) {
  Counted counted;
  counted.score = score_text(World::alone(), Bigram(), Digits(), text, options,
                             [&](const ScoredToken& token) { counted.tokens.push_back(token); });
  return counted;
}

std::vector<int64_t> positions_of(const std::vector<ScoredToken>& tokens) {
  std::vector<int64_t> positions;
  for (const ScoredToken& token : tokens) positions.push_back(token.position);
  return positions;
}

// Probabilities are of single precision.
TEST(ScoreText, EveryTokenButAWindowsFirstCounts) {
  const std::vector<int32_t> ids = some_ids(2 * context + 3);
  const auto [score, tokens] = count_in({.name = "x", .tokens = ids});
  double sum = 0.0;
  int64_t bytes = 0;
  size_t next = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i % context == 0) continue;
    ASSERT_LT(next, tokens.size());
    EXPECT_EQ(tokens[next].position, static_cast<int64_t>(i));
    EXPECT_EQ(tokens[next].id, ids[i]);
    EXPECT_FALSE(tokens[next].example);
    EXPECT_NEAR(tokens[next].log_probability, log_probability(ids[i - 1], ids[i]), 1e-6);
    sum += log_probability(ids[i - 1], ids[i]);
    bytes += ids[i] % 10;
    ++next;
  }
  EXPECT_EQ(next, tokens.size());
  EXPECT_EQ(score.tokens, 2 * (context - 1) + 2);
  EXPECT_EQ(score.bytes, bytes);
  EXPECT_NEAR(score.loss(), -sum / static_cast<double>(score.tokens), 1e-6);
  EXPECT_NEAR(score.perplexity(), std::exp(score.loss()), 1e-9);
  EXPECT_NEAR(
      score.bits_per_byte(),
      score.loss() * static_cast<double>(score.tokens) / std::numbers::ln2 / static_cast<double>(bytes),
      1e-9);
}

TEST(ScoreText, WindowsMayBeShorterThanTheContext) {
  EXPECT_EQ(positions_of(count_in({.name = "x", .tokens = some_ids(8)}, {.context = 3}).tokens),
            (std::vector<int64_t>{1, 2, 4, 5, 7}));
  EXPECT_EQ(positions_of(count_in({.name = "x", .tokens = some_ids(context + 1)}).tokens).size(), 7U)
      << "a window of one token has nothing that counts";
}

// The tokens are: a prompt of 2 and an answer of 3 with the end; a text of 4; an answer without a prompt and
// of one token; a prompt of 10, which fills a window, and an answer of 5.
TEST(ScoreText, AnExampleIsATextOfItsOwnAndItsPromptDoesNotCount) {
  std::vector<int32_t> ids = some_ids(25);
  ids[4] = 99;
  const EncodedText text{.name = "x", .tokens = ids, .examples = Marks({2, 5, 5, 9, 9, 10, 20, 25})};
  const auto [score, tokens] = count_in(text);
  EXPECT_EQ(positions_of(tokens), (std::vector<int64_t>{2, 3, 4, 1, 2, 3, 10, 11, 12, 13, 14}));
  std::vector<int64_t> examples;
  for (const ScoredToken& token : tokens) examples.push_back(token.example.value_or(-1));
  EXPECT_EQ(examples, (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 3, 3, 3, 3, 3}));
  EXPECT_EQ(tokens[2].id, 99);
  EXPECT_NEAR(tokens[3].log_probability, log_probability(ids[5], ids[6]), 1e-6);
  int64_t bytes = 0;
  for (const ScoredToken& token : tokens) bytes += token.id >= 98 ? 0 : token.id % 10;
  EXPECT_EQ(tokens[9].id, 98);
  EXPECT_EQ(score.bytes, bytes) << "special tokens have no bytes";
  const auto piece = count_in({.name = "x", .tokens = some_ids(16), .examples = Marks({9, 16})});
  EXPECT_EQ(positions_of(piece.tokens), (std::vector<int64_t>{9, 10, 11, 12, 13, 14, 15}))
      << "the second window begins in the prompt";
}

// The first conversation has 12 tokens: an answer of 2, one of 4 across two windows of 8, and an empty one.
// The second has 6 tokens with answers of 2 and 1, the third 4 tokens with an answer of 2.
TEST(ScoreText, AllAnswersOfAConversationCount) {
  const std::vector<int32_t> ids = some_ids(22);
  const Marks marks({2, ~4, 6, ~10, 12, 12, 13, ~15, 17, 18, 20, 22});
  const auto [score, tokens] = count_in({.name = "x", .tokens = ids, .examples = marks});
  EXPECT_EQ(positions_of(tokens), (std::vector<int64_t>{2, 3, 6, 7, 9, 1, 2, 5, 2, 3}));
  std::vector<int64_t> examples;
  for (const ScoredToken& token : tokens) examples.push_back(token.example.value_or(-1));
  EXPECT_EQ(examples, (std::vector<int64_t>{0, 0, 0, 0, 0, 1, 1, 1, 2, 2}));
  EXPECT_EQ(score.tokens, 10);
  EXPECT_NEAR(tokens[5].log_probability, log_probability(ids[12], ids[13]), 1e-6);
  EXPECT_NEAR(tokens[7].log_probability, log_probability(ids[16], ids[17]), 1e-6);
}

TEST(ScoreText, DependsNeitherOnRanksNorOnThePasses) {
  std::vector<int64_t> marks;
  for (int64_t begin = 0, i = 0; begin < 400; ++i) {
    marks.push_back(begin + i % 3);
    marks.push_back(begin += 2 + i % 13);
  }
  for (const bool has_examples : {false, true}) {
    EncodedText text{.name = "x", .tokens = some_ids(marks.back()), .examples = {}};
    if (has_examples) text.examples = Marks(marks);
    const Counted alone = count_in(text, {.tokens_at_once = 1});
    for (const int64_t tokens : {20, 100, 100'000})
      EXPECT_EQ(count_in(text, {.tokens_at_once = tokens}).score.log_probability,
                alone.score.log_probability);
    run_ranks(3, [&](Communicator& communicator) {
      std::vector<int64_t> positions;
      const TextScore score =
          score_text(World(communicator.shared_from_this()), Bigram(), Digits(), text, {.tokens_at_once = 50},
                     [&](const ScoredToken& token) { positions.push_back(token.position); });
      EXPECT_EQ(score.log_probability, alone.score.log_probability);
      EXPECT_EQ(score.tokens, alone.score.tokens);
      EXPECT_EQ(score.bytes, alone.score.bytes);
      EXPECT_EQ(positions, positions_of(alone.tokens));
    });
  }
}

TEST(ScoreText, NamesATextThatItCannotScore) {
  const auto refused = [](const EncodedText& text, const std::vector<std::string>& words) {
    expect_contains(user_error([&] { count_in(text); }), words);
  };
  refused({.name = "a.txt", .tokens = std::vector<int32_t>{7}}, {"a.txt has 1 token", "at least 2"});
  refused({.name = "a.txt", .tokens = std::vector<int32_t>{}}, {"a.txt has 0 tokens"});
  refused({.name = "a.jsonl", .tokens = some_ids(2), .examples = Marks({0, 1, 1, 2})},
          {"a.jsonl has 2 tokens and none to score"});
  refused({.name = "a.txt", .tokens = std::vector<int32_t>{1, 2, 3, 100}},
          {"a.txt has a token with the id 100", "ids below 100"});
}

TEST(ScoreText, LinesOfJsonHaveAllDigits) {
  const TextScore score{.log_probability = -1.0 / 3, .tokens = 3, .bytes = 0};
  const auto line = nlohmann::json::parse(to_json_line("a\xFF", score));
  EXPECT_EQ(line["file"], "a\xEF\xBF\xBD");
  EXPECT_EQ(line["loss"].get<double>(), score.loss());
  EXPECT_EQ(line["perplexity"].get<double>(), score.perplexity());
  EXPECT_TRUE(line["bits_per_byte"].is_null()) << "no bytes";
  EXPECT_EQ(line["tokens"], 3);
  EXPECT_EQ(to_json_line("a", {.example = 2, .position = 4, .id = 13, .log_probability = -0.5}, Digits()),
            R"({"file":"a","example":2,"position":4,"id":13,"token":"xxx","logprob":-0.5})");
  EXPECT_EQ(to_json_line("a", {.position = 4, .id = 5, .log_probability = -0.5}, Digits()),
            "{\"file\":\"a\",\"position\":4,\"id\":5,\"token\":\"" +
                std::string("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD") +
                "\",\"logprob\":-0.5}");
}

}  // namespace
}  // namespace lockstep::score_test
