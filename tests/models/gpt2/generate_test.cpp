// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/generate.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/tensor/create.h"

namespace lockstep::generate_test {
namespace {

constexpr int64_t block_size = 8;

/// Returns a small model that writes varied texts. Freshly initialised weights would nearly always produce
/// the same text.
std::unique_ptr<Gpt> make_model() {
  auto model = std::make_unique<Gpt>(Gpt::Options{.vocabulary = 16,
                                                  .block_size = block_size,
                                                  .layers = 2,
                                                  .heads = 2,
                                                  .width = 16,
                                                  .tie_weights = false},
                                     5);
  uint32_t stream_id = 0;
  for (const auto& [name, tensor] : model->parameters())
    if (tensor.shape().rank() == 2) fill_normal(tensor, 0.0, 1.0, 7, stream_id++);
  return model;
}

std::vector<int32_t> first_ids(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((5 * i + count) % 16));
  return ids;
}

/// Returns the likeliest token after the last `block_size` ids. Reads all of them again.
int32_t likeliest(const Gpt& model, const std::vector<int32_t>& ids) {
  const NoGrad no_grad;
  const int64_t time = std::min<int64_t>(block_size, std::ssize(ids));
  const Tensor logits = model(from_values(std::vector<int32_t>(ids.end() - time, ids.end()), {1, time}), {});
  const auto last = to_doubles(logits.reshape({time, -1}).slice(time - 1, time));
  return static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
}

// Prompts within the block size, beyond it from the start, and across it.
TEST(Generate, WritesWhatAModelWritesThatReadsTheWholeWindowAnew) {
  const auto model = make_model();
  std::set<std::vector<int32_t>> endings;
  for (int64_t length = 1; length <= 16; ++length) {
    std::vector<int32_t> ids = first_ids(length);
    for (int token = 0; token < 10; ++token) ids.push_back(likeliest(*model, ids));
    const GenerateOptions likeliest_ten{.tokens = 10, .temperature = 0.0};
    EXPECT_EQ(generate(*model, first_ids(length), likeliest_ten), ids);
    const auto any_model = [&](const Tensor& read) { return (*model)(read, {}); };
    EXPECT_EQ(generate(any_model, block_size, first_ids(length), likeliest_ten), ids);
    endings.insert({ids.begin() + length, ids.end()});
  }
  EXPECT_GT(endings.size(), 3U) << "the texts are too similar to show errors";
}

/// Returns prompts of all lengths, with options of each kind and one common seed.
std::vector<Prompt> varied_prompts() {
  std::vector<Prompt> prompts;
  for (uint32_t i = 0; i < 9; ++i) {
    GenerateOptions options{.tokens = 3 + 4 * (i % 3), .prompt = i};
    if (i % 3 == 1) options.top_p = 0.9;
    if (i % 4 == 1) options.repetition_penalty = 1.3;
    if (i % 4 == 2) options.end_of_text = 3;
    if (i % 4 == 3) options.top_k = 5;
    if (i == 4) options.tokens = 0;
    prompts.push_back({.ids = first_ids(1 + 5 * i % 11), .options = options});
  }
  return prompts;
}

TEST(Generate, ABatchItsOrderItsPassesAndThreadsDoNotShow) {
  const auto model = make_model();
  const std::vector<Prompt> prompts = varied_prompts();
  std::vector<Continuation> alone;
  std::set<std::vector<int32_t>> texts;
  for (const Prompt& prompt : prompts) {
    alone.push_back(generate(*make_text_model(*model), {prompt})[0]);
    texts.insert(alone.back().ids);
  }
  EXPECT_GT(texts.size(), 6U) << "the texts are too similar to show errors";
  std::vector<Prompt> reversed(prompts.rbegin(), prompts.rend());
  for (const int threads : {1, 3})
    for (const BatchLimits& limits : {BatchLimits{},
                                      {.texts = 1, .tokens = 3},
                                      {.texts = 3, .tokens = 2},
                                      {.texts = 4, .tokens = 100},
                                      {.texts = 20, .tokens = 11}}) {
      SCOPED_TRACE(concat(threads, " threads, ", limits.texts, " texts, ", limits.tokens, " tokens"));
      set_threads(threads);
      const auto cached = make_text_model(*model);
      const auto uncached = make_text_model([&](const Tensor& ids) { return (*model)(ids, {}); }, block_size);
      const auto together = generate(*cached, prompts, limits),
                 backwards = generate(*cached, reversed, limits);
      const auto anew = generate(*uncached, prompts, limits);
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(together[i].ids, alone[i].ids) << i;
        EXPECT_EQ(together[i].finish, alone[i].finish) << i;
        EXPECT_EQ(backwards[prompts.size() - 1 - i].ids, alone[i].ids) << i;
        EXPECT_EQ(anew[i].ids, alone[i].ids) << i;
      }
    }
  set_threads(1);
}

/// A user's own model: the likeliest id is the last one plus 1. It fails if a call lacks the tokens it needs.
class Counter : public TextModel {
 public:
  int64_t context() const override { return 6; }
  void start(int64_t texts, int64_t tokens) override {
    EXPECT_LE(tokens, context());
    most_ = tokens;
    read_.assign(static_cast<size_t>(texts), 0);
  }
  Tensor next_logits(std::span<const NextTokens> parts) override {
    std::vector<float> logits(parts.size() * 10);
    for (size_t row = 0; row < parts.size(); ++row) {
      int64_t& read = read_.at(static_cast<size_t>(parts[row].text));
      EXPECT_LE(parts[row].past, read) << "the model has not read these tokens";
      read = parts[row].past + std::ssize(parts[row].ids);
      EXPECT_LE(read, most_);
      logits[row * 10 + static_cast<size_t>(parts[row].ids.back() + 1) % 10] = 5.0F;
      most_at_once = std::max(most_at_once, parts.size());
    }
    return from_values(logits, {std::ssize(parts), 10});
  }
  size_t most_at_once = 0;

 private:
  int64_t most_ = 0;
  std::vector<int64_t> read_;
};

TEST(Generate, TakesAnyModelAndSaysWhyATextEnds) {
  Counter counter;
  int asked = 0;
  const GenerateOptions four{.tokens = 4, .temperature = 0.0};
  std::vector<Prompt> prompts(5, {.ids = {1, 2}, .options = four});
  prompts[1].options.end_of_text = 5;
  prompts[2].on_token = [](int32_t id) { return id != 3; };
  prompts[3].options.go_on = [&] { return ++asked < 3; };
  prompts[4].ids = {1, 2, 3, 4, 5, 6, 7, 8};
  prompts[4].options.tokens = 3;
  std::vector<size_t> finished;
  const auto results = generate(counter, prompts, {.texts = 4},
                                [&](size_t index, const Continuation&) { finished.push_back(index); });
  const std::vector<std::vector<int32_t>> ids = {{3, 4, 5, 6}, {3, 4}, {3}, {3, 4}, {9, 0, 1}};
  const Finish reasons[] = {Finish::length, Finish::end_of_text, Finish::stopped, Finish::interrupted,
                            Finish::length};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(results[i].ids, ids[i]) << i;
    EXPECT_EQ(results[i].finish, reasons[i]) << i;
  }
  EXPECT_EQ(counter.most_at_once, 4U);
  EXPECT_EQ(asked, 3) << "asked once before each token";
  EXPECT_EQ(finished.size(), 5U);
  EXPECT_EQ(finished[0], 2U);
}

TEST(Generate, AsManyTokensAsThereAreNumbersMeanUntilTheEnd) {
  Counter counter;
  const GenerateOptions all{
      .tokens = std::numeric_limits<int64_t>::max(), .temperature = 0.0, .end_of_text = 0};
  EXPECT_EQ(generate(counter, {{.ids = {1}, .options = all}})[0].ids,
            (std::vector<int32_t>{2, 3, 4, 5, 6, 7, 8, 9}));
}

/// Returns how often each id is drawn at 4000 positions, in percent.
std::map<int32_t, double> percentages(const std::vector<double>& logits, const GenerateOptions& options) {
  std::map<int32_t, double> counts;
  for (uint32_t position = 0; position < 4000; ++position)
    counts[next_token(logits, {}, options, position)] += 100.0 / 4000;
  return counts;
}

void expect_percentages(const GenerateOptions& options, const std::map<int32_t, double>& expected) {
  const std::vector<double> logits = {std::log(0.1), std::log(0.5), std::log(0.15), std::log(0.25)};
  const auto actual = percentages(logits, options);
  ASSERT_EQ(actual.size(), expected.size());
  // Three standard deviations of 4000 draws are at most 2.4 percent.
  for (const auto& [id, percent] : expected) EXPECT_NEAR(actual.at(id), percent, 2.4) << id;
}

TEST(Sampling, DrawsFromWhatTheOptionsLeave) {
  expect_percentages({.temperature = 1.0}, {{0, 10}, {1, 50}, {2, 15}, {3, 25}});
  expect_percentages({.temperature = 0.5}, {{0, 2.9}, {1, 72.5}, {2, 6.5}, {3, 18.1}});
  expect_percentages({.temperature = 1.0, .top_k = 2}, {{1, 66.7}, {3, 33.3}});
  expect_percentages({.temperature = 1.0, .top_p = 0.76}, {{1, 55.6}, {3, 27.8}, {2, 16.7}});
  expect_percentages({.temperature = 1.0, .top_p = 0.7}, {{1, 66.7}, {3, 33.3}});
  expect_percentages({.temperature = 1.0, .top_p = 0.01}, {{1, 100}});
  expect_percentages({.temperature = 1.0, .top_k = 2, .top_p = 0.6}, {{1, 100}});
  expect_percentages({.temperature = 1.0, .symbols = 2}, {{0, 16.7}, {1, 83.3}});
  expect_percentages({.temperature = 0.0}, {{1, 100}});
}

// The vocabulary is so large that it is ranked in several steps. The tail is drawn from too.
TEST(Sampling, RanksLargeVocabulariesAsFarAsItNeeds) {
  std::vector<double> logits(1000, 0.0);
  for (size_t id = 0; id < 1000; id += 2) logits[id] = -100.0;
  const auto counts = percentages(logits, {.temperature = 1.0});
  EXPECT_GT(counts.size(), 480U);
  for (const auto& [id, percent] : counts) EXPECT_EQ(id % 2, 1);
  const auto few = percentages(logits, {.temperature = 1.0, .top_k = 100});
  EXPECT_EQ(few.size(), 100U);
  EXPECT_EQ(few.rbegin()->first, 199) << "the lower ids among equal logits";
}

TEST(Sampling, RepetitionIsPenalizedByTheSignOfTheLogit) {
  const GenerateOptions options{.temperature = 0.0, .repetition_penalty = 2.0};
  const std::vector<double> logits = {2.0, 1.5, -0.4, 1.1};
  EXPECT_EQ(next_token(logits, std::vector<int32_t>{}, options, 0), 0);
  EXPECT_EQ(next_token(logits, std::vector<int32_t>{0, 0, 9}, options, 0), 1)
      << "once, however often the token occurs";
  EXPECT_EQ(next_token(logits, std::vector<int32_t>{0, 1}, options, 0), 3);
  const std::vector<double> negative = {-1.0, -1.5};
  EXPECT_EQ(next_token(negative, std::vector<int32_t>{0}, options, 0), 1);
}

TEST(Sampling, SurvivesWhatIsNotANumber) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    const GenerateOptions options{.temperature = temperature};
    EXPECT_EQ(next_token(std::vector<double>{NAN, -infinity, 0.0}, {}, options, 0), 2);
    EXPECT_EQ(next_token(std::vector<double>{NAN, NAN}, {}, options, 0), 0);
    EXPECT_EQ(next_token(std::vector<double>{1.0, infinity}, {}, options, 0), 1);
  }
}

TEST(Sampling, SeedPromptAndPositionGiveOtherDraws) {
  const std::vector<double> logits(1000, 0.0);
  std::set<int32_t> drawn;
  for (const uint64_t seed : {1, 2})
    for (const uint32_t prompt : {0, 1})
      for (const uint32_t position : {0, 1})
        drawn.insert(next_token(logits, {}, {.seed = seed, .prompt = prompt}, position));
  EXPECT_EQ(drawn.size(), 8U);
}

TEST(Sampling, RefusesOptionsOutOfRange) {
  const auto refused = [](const GenerateOptions& options, const std::string& name) {
    try {
      require_valid(options, "line 3: ");
      FAIL() << name << " was taken";
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("line 3: " + name), 0U) << error.what();
    }
  };
  refused({.tokens = -1}, "max_new_tokens is -1");
  refused({.temperature = -0.5}, "temperature is -0.5");
  refused({.temperature = NAN}, "temperature");
  refused({.top_k = -1}, "top_k is -1");
  refused({.top_p = 0.0}, "top_p is 0");
  refused({.top_p = 1.5}, "top_p is 1.5");
  refused({.repetition_penalty = 0.0}, "repetition_penalty is 0");
}

}  // namespace
}  // namespace lockstep::generate_test
