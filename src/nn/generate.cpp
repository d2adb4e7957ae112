// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/generate.h"

#include <algorithm>
#include <list>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

class CachedModel final : public TextModel {
 public:
  explicit CachedModel(const LanguageModel& model) : model_(model) {}

  int64_t context() const override { return model_.context_length(); }
  void start(int64_t texts, int64_t tokens) override { cache_ = {.texts = texts, .capacity = tokens}; }
  Tensor next_logits(std::span<const NextTokens> parts) override { return model_.next_logits(parts, cache_); }

 private:
  const LanguageModel& model_;
  KeyValueCache cache_;
};

class UncachedModel final : public TextModel {
 public:
  UncachedModel(LogitsFunction model, int64_t context) : model_(std::move(model)), context_(context) {}

  int64_t context() const override { return context_; }
  void start(int64_t texts, int64_t /*tokens*/) override { texts_.assign(static_cast<size_t>(texts), {}); }

  Tensor next_logits(std::span<const NextTokens> parts) override {
    const NoGrad no_grad;
    Tensor logits;
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<int32_t>& ids = texts_[static_cast<size_t>(parts[i].text)];
      ids.resize(static_cast<size_t>(parts[i].past));
      ids.insert(ids.end(), parts[i].ids.begin(), parts[i].ids.end());
      const Tensor all = model_(from_values(ids, {1, static_cast<int64_t>(ids.size())}));
      const int64_t rows = all.shape().rows(), columns = all.shape()[-1];
      const auto row = static_cast<int64_t>(i);
      if (!logits) logits = empty({static_cast<int64_t>(parts.size()), columns}, all.dtype(), all.stream());
      copy(all.reshape({rows, columns}).slice(rows - 1, rows), logits.slice(row, row + 1));
    }
    return logits;
  }

 private:
  LogitsFunction model_;
  int64_t context_;
  std::vector<std::vector<int32_t>> texts_;
};

/// A text in progress. `place` is its number among the texts of the model.
class RunningText {
 public:
  RunningText(const Prompt& prompt, size_t index, int64_t place, int64_t context)
      : prompt_(prompt), index_(index), place_(place), context_(context), ids_(prompt.ids) {
    move_window();
  }

  size_t index() const { return index_; }
  int64_t place() const { return place_; }
  /// Returns the tokens drawn so far and why the text has ended.
  Continuation result() const {
    return {.ids = {ids_.begin() + static_cast<std::ptrdiff_t>(prompt_.ids.size()), ids_.end()},
            .finish = finish_};
  }

  /// Returns whether another token must be drawn. Ends the text if not.
  bool goes_on() {
    if (is_over_) return false;
    if (drawn() >= prompt_.options.tokens) return end(Finish::length);
    return prompt_.options.go_on() || end(Finish::interrupted);
  }

  int64_t unread() const { return size() - begin_ - read_; }
  NextTokens next_part(int64_t most) {
    const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(begin_ + read_);
    const int64_t count = std::min(most, unread());
    NextTokens part{
        .text = place_, .past = read_, .ids = {first, first + static_cast<std::ptrdiff_t>(count)}};
    read_ += count;
    return part;
  }

  int32_t next_id(std::span<const double> logits) const {
    return next_token(logits, ids_, prompt_.options, static_cast<uint32_t>(drawn()));
  }
  void take(int32_t id) {
    if (id == prompt_.options.end_of_text) {
      end(Finish::end_of_text);
      return;
    }
    ids_.push_back(id);
    move_window();
    if (prompt_.on_token && !prompt_.on_token(id)) end(Finish::stopped);
  }

 private:
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  int64_t drawn() const { return size() - static_cast<int64_t>(prompt_.ids.size()); }
  bool end(Finish finish) {
    finish_ = finish;
    is_over_ = true;
    return false;
  }
  /// Beyond the context each new token moves all tokens to another position. So all are read again.
  void move_window() {
    const int64_t begin = std::max<int64_t>(0, size() - context_);
    if (begin != begin_) read_ = 0;
    begin_ = begin;
  }

  const Prompt& prompt_;
  size_t index_;
  int64_t place_, context_;
  std::vector<int32_t> ids_;
  int64_t begin_ = 0;  ///< index of the first token that the model sees
  int64_t read_ = 0;   ///< tokens from there that the model has read
  Finish finish_ = Finish::length;
  bool is_over_ = false;
};

class Batch {
 public:
  Batch(TextModel& model, const std::vector<Prompt>& prompts, const BatchLimits& limits)
      : model_(model), prompts_(prompts), limits_(limits) {
    const int64_t context = model.context();
    int64_t longest = 1;
    // Users choose the numbers of tokens, so their sum must not overflow.
    for (const Prompt& prompt : prompts)
      longest = std::max(longest,
                         static_cast<int64_t>(prompt.ids.size()) + std::min(prompt.options.tokens, context));
    const int64_t texts = std::min(limits.texts, static_cast<int64_t>(prompts.size()));
    model.start(texts, std::min(context, longest));
    for (int64_t place = texts; place > 0; --place) free_places_.push_back(place - 1);
  }

  template <class OnFinish>
  void run(OnFinish&& on_finish) {
    while (admit()) {
      std::erase_if(running_, [&](RunningText& text) {
        if (text.goes_on()) return false;
        free_places_.push_back(text.place());
        on_finish(text);
        return true;
      });
      if (!running_.empty()) pass();
    }
  }

 private:
  /// Gives free places to waiting prompts. Returns whether any text is in progress.
  bool admit() {
    for (; !free_places_.empty() && next_ < prompts_.size(); ++next_) {
      running_.emplace_back(prompts_[next_], next_, free_places_.back(), model_.context());
      free_places_.pop_back();
    }
    return !running_.empty();
  }

  void pass() {
    std::vector<NextTokens> parts;
    std::vector<RunningText*> texts;
    int64_t room = limits_.tokens;
    for (RunningText& text : running_) {
      if (room == 0) break;
      parts.push_back(text.next_part(room));
      texts.push_back(&text);
      room -= static_cast<int64_t>(parts.back().ids.size());
    }
    const std::vector<double> logits = to_doubles(model_.next_logits(parts));
    const size_t columns = logits.size() / parts.size();
    expect(columns > 0, "the model returned no logits for ", parts.size(), " texts");
    std::vector<int32_t> ids(parts.size());
    std::get<CpuStream>(cpu_stream()).for_each_chunk(std::ssize(ids), 1, [&](int64_t part, int64_t) {
      const auto i = static_cast<size_t>(part);
      if (texts[i]->unread() == 0)
        ids[i] = texts[i]->next_id(std::span(logits).subspan(i * columns, columns));
    });
    for (size_t i = 0; i < parts.size(); ++i)
      if (texts[i]->unread() == 0) texts[i]->take(ids[i]);
  }

  TextModel& model_;
  const std::vector<Prompt>& prompts_;
  BatchLimits limits_;
  std::vector<int64_t> free_places_;
  size_t next_ = 0;
  std::list<RunningText> running_;
};

std::vector<int32_t> continue_one(TextModel& model, std::vector<int32_t> ids, const GenerateOptions& options,
                                  const BatchLimits& limits = {}) {
  const std::vector<Continuation> texts = generate(model, {{.ids = ids, .options = options}}, limits);
  ids.insert(ids.end(), texts[0].ids.begin(), texts[0].ids.end());
  return ids;
}

}  // namespace

std::unique_ptr<TextModel> make_text_model(const LanguageModel& model) {
  return std::make_unique<CachedModel>(model);
}

std::unique_ptr<TextModel> make_text_model(LogitsFunction model, int64_t context) {
  return std::make_unique<UncachedModel>(std::move(model), context);
}

std::vector<Continuation> generate(TextModel& model, const std::vector<Prompt>& prompts,
                                   const BatchLimits& limits,
                                   const std::function<void(size_t, const Continuation&)>& on_finish) {
  expect(limits.texts > 0 && limits.tokens > 0, "batch limits must be positive: ", limits.texts, " texts, ",
         limits.tokens, " tokens per pass");
  for (const Prompt& prompt : prompts) {
    require_valid(prompt.options);
    expect(!prompt.ids.empty(), "generate: a prompt has no tokens");
  }
  const NoGrad no_grad;
  std::vector<Continuation> results(prompts.size());
  Batch(model, prompts, limits).run([&](const RunningText& text) {
    results[text.index()] = text.result();
    if (on_finish) on_finish(text.index(), results[text.index()]);
  });
  return results;
}

std::vector<int32_t> generate(const LogitsFunction& model, int64_t context, std::vector<int32_t> ids,
                              const GenerateOptions& options) {
  return continue_one(*make_text_model(model, context), std::move(ids), options, {.tokens = context});
}

std::vector<int32_t> generate(const LanguageModel& model, std::vector<int32_t> ids,
                              const GenerateOptions& asked) {
  GenerateOptions options = asked;
  if (options.symbols == 0) options.symbols = model.vocabulary();  // the table may have more rows
  return continue_one(*make_text_model(model), std::move(ids), options);
}

}  // namespace lockstep
