// SPDX-License-Identifier: Apache-2.0
#include "writing/write_texts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

WrittenText::WrittenText(std::vector<std::string> stop_texts, TextSink sink)
    : stop_texts_(std::move(stop_texts)), sink_(std::move(sink)) {
  for (const std::string& stop : stop_texts_) require(!stop.empty(), "stop: a stop text must not be empty");
}

bool WrittenText::add(std::string_view bytes) {
  held_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_texts_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    hand_out(first, true);
    held_.clear();
    return false;
  }
  hand_out(held_.size() - possible_stop(), false);
  return true;
}

void WrittenText::finish() { hand_out(held_.size(), true); }

size_t WrittenText::possible_stop() const {
  size_t most = 0;
  for (const std::string& stop : stop_texts_)
    for (size_t count = std::min(held_.size(), stop.size() - 1); count > most; --count)
      if (held_.ends_with(std::string_view(stop).substr(0, count))) most = count;
  return most;
}

void WrittenText::hand_out(size_t bytes, bool is_end) {
  const std::string_view whole = std::string_view(held_).substr(0, bytes);
  std::string piece;
  size_t taken = 0;
  while (taken < whole.size()) {
    const Utf8Character next = first_character(whole.substr(taken));
    if (next.state == Utf8Character::State::cut && !is_end) break;
    piece += next.is_valid() ? whole.substr(taken, next.bytes) : replacement;
    taken += next.bytes;
  }
  held_.erase(0, taken);
  text_ += piece;
  if (sink_ && !piece.empty()) sink_(piece);
}

const char* name(Finish finish) {
  constexpr std::array names = {"length", "end_of_text", "stop", "interrupted"};
  return names.at(static_cast<size_t>(finish));
}

std::vector<TextContinuation> write_texts(
    TextModel& model, const Tokenizer& tokenizer, const std::vector<TextPrompt>& prompts,
    const BatchLimits& limits, const std::function<void(size_t, const TextContinuation&)>& on_finish) {
  std::vector<WrittenText> written;
  std::vector<Prompt> tokens;
  written.reserve(prompts.size());
  for (const TextPrompt& prompt : prompts) {
    WrittenText& text = written.emplace_back(prompt.stop_texts, prompt.sink);
    std::vector<int32_t> ids =
        prompt.text.empty() ? tokenizer.beginning() : tokenizer.encode(prompt.text, prompt.source);
    require(!ids.empty(), prompt.source, " has no tokens");
    Prompt& next = tokens.emplace_back(Prompt{.ids = std::move(ids), .options = prompt.options});
    next.options.symbols = tokenizer.vocabulary_size();
    next.options.end_of_text = tokenizer.end_of_text();
    next.on_token = [&text, &tokenizer](int32_t id) { return text.add(tokenizer.decode(std::array{id})); };
  }
  std::vector<TextContinuation> results(prompts.size());
  generate(model, tokens, limits, [&](size_t index, const Continuation& continuation) {
    written[index].finish();
    results[index] = {.text = written[index].text(),
                      .ids = continuation.ids,
                      .prompt_tokens = std::ssize(tokens[index].ids),
                      .finish = continuation.finish};
    if (on_finish) on_finish(index, results[index]);
  });
  return results;
}

std::string write_text(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                       const GenerateOptions& options) {
  const std::string beginning = prompt.empty() ? tokenizer.decode(tokenizer.beginning()) : prompt;
  const TextPrompt text{.text = prompt, .source = "--prompt", .options = options};
  return beginning + write_texts(*make_text_model(model), tokenizer, {text})[0].text;
}

}  // namespace lockstep
