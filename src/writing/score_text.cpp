// SPDX-License-Identifier: Apache-2.0
#include "lockstep/writing/score_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/elementary.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

/// Tokens [begin, end) that a model reads at once. The tokens `counted` count, and never the first.
struct ScoreWindow {
  int64_t example = 0;
  int64_t origin = 0;  ///< where the example begins
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int64_t> counted = {};

  int64_t size() const { return end - begin; }
};

/// The windows that have a token which counts, one after the other.
class ScoreWindows {
 public:
  ScoreWindows(Marks examples, int64_t context) : examples_(std::move(examples)), context_(context) {
    move();
  }

  /// Returns the next windows: as many as have at most `most` tokens with padding, or one. Empty at the end.
  std::vector<ScoreWindow> next(int64_t most) {
    std::vector<ScoreWindow> windows;
    for (int64_t longest = 0; next_; move()) {
      longest = std::max(longest, next_->size());
      if (!windows.empty() && (std::ssize(windows) + 1) * longest > most) break;
      windows.push_back(std::move(*next_));
    }
    return windows;
  }

 private:
  void move() {
    next_.reset();
    while (!next_ && (token_ < end_ || open_example())) {
      ScoreWindow window{.example = example_ - 1,
                         .origin = origin_,
                         .begin = token_,
                         .end = std::min(end_, token_ + context_)};
      for (const Marks::Answer& answer : answers_)
        for (int64_t place = std::max(token_ + 1, answer.begin); place < std::min(answer.end, window.end);
             ++place)
          window.counted.push_back(place);
      token_ = window.end;
      if (!window.counted.empty()) next_ = std::move(window);
    }
  }
  /// Reads the answers of the next example.
  bool open_example() {
    if (answer_ == examples_.answers()) return false;
    answers_.clear();
    do {
      const Marks::Answers one = examples_.read(answer_++, 1);
      if (answers_.empty()) origin_ = token_ = one.begin;
      answers_.push_back(one.all[0]);
    } while (answers_.back().continues);
    end_ = answers_.back().end;
    ++example_;
    return true;
  }

  Marks examples_;
  int64_t context_;
  int64_t example_ = 0, answer_ = 0;  ///< the next ones to open
  std::vector<Marks::Answer> answers_;
  int64_t origin_ = 0, token_ = 0, end_ = 0;
  std::optional<ScoreWindow> next_;
};

/// Windows of a pass, padded to the longest.
struct ScoreBatch {
  std::vector<ScoreWindow> windows;
  int64_t longest = 0;
  std::vector<int32_t> ids = {};  ///< [windows, longest]

  ScoreBatch(std::vector<ScoreWindow> of_pass, const EncodedText& text, int64_t vocabulary)
      : windows(std::move(of_pass)) {
    for (const ScoreWindow& window : windows) longest = std::max(longest, window.size());
    ids.resize(windows.size() * static_cast<size_t>(longest), 0);
    for (size_t i = 0; i < windows.size(); ++i) {
      const auto of_window = std::span(ids).subspan(i * static_cast<size_t>(longest));
      text.tokens.copy(windows[i].begin, windows[i].size(), of_window.data());
      for (const int32_t id : of_window.first(static_cast<size_t>(windows[i].size())))
        require(id >= 0 && id < vocabulary, text.name, " has a token with the id ", id,
                ", but the model has only the ids below ", vocabulary);
    }
  }

  /// Returns the number of losses: one for each token of a row except the first.
  int64_t losses() const { return std::ssize(windows) * (longest - 1); }
};

/// Returns the losses of a batch, [windows, longest - 1].
std::vector<double> losses_of(const LanguageModel& model, const ScoreBatch& batch) {
  constexpr int64_t logits_at_once = int64_t{1} << 24;
  const int64_t rows = std::ssize(batch.windows), time = batch.longest - 1;
  std::vector<int32_t> inputs, targets;
  for (int64_t row = 0; row < rows; ++row) {
    const ScoreWindow& window = batch.windows[static_cast<size_t>(row)];
    const int32_t* const ids = batch.ids.data() + row * batch.longest;
    inputs.insert(inputs.end(), ids, ids + time);
    targets.resize(inputs.size(), -1);
    for (const int64_t place : window.counted)
      targets[static_cast<size_t>(row * time + place - window.begin - 1)] = ids[place - window.begin];
  }
  return to_doubles(model.token_losses(from_values(inputs, {rows, time}), from_values(targets, {rows, time}),
                                       std::max<int64_t>(16, logits_at_once / model.vocabulary())));
}

/// Returns the losses of all batches, of which rank i computes number i.
std::vector<std::vector<double>> losses_of_round(const World& world, const LanguageModel& model,
                                                 const std::vector<ScoreBatch>& round) {
  const auto rank = static_cast<size_t>(world.rank());
  std::vector<double> mine;
  if (rank < round.size()) mine = losses_of(model, round[rank]);
  if (world.size() == 1) return {std::move(mine)};
  int64_t most = 0;
  for (const ScoreBatch& batch : round) most = std::max(most, batch.losses());
  mine.resize(static_cast<size_t>(most), 0.0);
  std::vector<double> all(mine.size() * static_cast<size_t>(world.size()));
  world.communicator().all_gather(mine.data(), most * static_cast<int64_t>(sizeof(double)), all.data());
  std::vector<std::vector<double>> losses;
  for (size_t i = 0; i < round.size(); ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i) * most;
    losses.emplace_back(begin, begin + round[i].losses());
  }
  return losses;
}

/// A sum over tokens in their order.
class ScoreSum {
 public:
  ScoreSum(const Tokenizer& tokenizer, bool has_examples,
           const std::function<void(const ScoredToken&)>& on_token)
      : tokenizer_(tokenizer), has_examples_(has_examples), on_token_(on_token) {}

  void add(const ScoreBatch& batch, const std::vector<double>& losses) {
    for (size_t row = 0; row < batch.windows.size(); ++row) {
      const ScoreWindow& window = batch.windows[row];
      for (const int64_t place : window.counted) {
        const auto i = static_cast<size_t>(place - window.begin);
        const auto longest = static_cast<size_t>(batch.longest);
        add({.example = has_examples_ ? std::optional(window.example) : std::nullopt,
             .position = place - window.origin,
             .id = batch.ids[row * longest + i],
             .log_probability = -losses[row * (longest - 1) + i - 1]});
      }
    }
  }
  const TextScore& score() const { return score_; }

 private:
  void add(const ScoredToken& token) {
    score_.log_probability += token.log_probability;
    ++score_.tokens;
    score_.bytes += bytes_of(token.id);
    if (on_token_) on_token_(token);
  }
  int64_t bytes_of(int32_t id) {
    const auto place = static_cast<size_t>(id);
    if (place >= bytes_.size()) bytes_.resize(place + 1, -1);
    if (bytes_[place] >= 0) return bytes_[place];
    const std::string text = tokenizer_.decode(std::array{id});
    const bool is_special = id == tokenizer_.end_of_text() || id == tokenizer_.beginning_of_text() ||
                            id == tokenizer_.special_token(text);
    return bytes_[place] = is_special ? 0 : std::ssize(text);
  }

  const Tokenizer& tokenizer_;
  bool has_examples_;
  const std::function<void(const ScoredToken&)>& on_token_;
  std::vector<int64_t> bytes_;  ///< [id], -1: not known yet
  TextScore score_;
};

/// Returns JSON whose texts may have been other bytes than UTF-8.
std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

double TextScore::perplexity() const { return math::exp(loss()); }

double TextScore::bits_per_byte() const {
  return -log_probability / std::numbers::ln2 / static_cast<double>(bytes);
}

TextScore score_text(const World& world, const LanguageModel& model, const Tokenizer& tokenizer,
                     const EncodedText& text, const ScoreOptions& options,
                     const std::function<void(const ScoredToken&)>& on_token) {
  const NoGrad no_grad;
  const int64_t context = options.context > 0 ? options.context : model.context_length();
  expect(context <= model.context_length(), "windows of ", context, " tokens for a context of ",
         model.context_length());
  const int64_t all = text.tokens.size();
  ScoreWindows windows(text.examples.value_or(Marks(std::vector<int64_t>{0, all})), context);
  ScoreSum sum(tokenizer, text.examples.has_value(), on_token);
  for (bool is_over = false; !is_over;) {
    std::vector<ScoreBatch> round;
    while (!is_over && std::ssize(round) < world.size()) {
      std::vector<ScoreWindow> next = windows.next(options.tokens_at_once);
      is_over = next.empty();
      if (!is_over) round.emplace_back(std::move(next), text, model.vocabulary());
    }
    if (round.empty()) break;
    const std::vector<std::vector<double>> losses = losses_of_round(world, model, round);
    for (size_t i = 0; i < round.size(); ++i) sum.add(round[i], losses[i]);
  }
  require(sum.score().tokens > 0, text.name, " has ", counted(all, "token"), " and none to score: ",
          text.examples ? "an answer needs a token before it" : "at least 2 are needed");
  return sum.score();
}

std::string to_json_line(const std::string& file, const TextScore& score) {
  return line_of({{"file", file},
                  {"loss", score.loss()},
                  {"perplexity", score.perplexity()},
                  {"bits_per_byte", score.bits_per_byte()},
                  {"tokens", score.tokens},
                  {"bytes", score.bytes}});
}

std::string to_json_line(const std::string& file, const ScoredToken& token, const Tokenizer& tokenizer) {
  nlohmann::ordered_json json = {{"file", file}};
  if (token.example) json["example"] = *token.example;
  json["position"] = token.position;
  json["id"] = token.id;
  json["token"] = tokenizer.decode(std::array{token.id});
  json["logprob"] = token.log_probability;
  return line_of(json);
}

}  // namespace lockstep
