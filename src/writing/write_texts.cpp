// SPDX-License-Identifier: Apache-2.0
#include "writing/write_texts.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace lockstep {

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

std::string write_text(const Gpt& model, const Tokenizer& tokenizer, const std::string& prompt,
                       const GenerateOptions& options) {
  const std::string beginning = prompt.empty() ? tokenizer.decode(tokenizer.beginning()) : prompt;
  const TextPrompt text{.text = prompt, .source = "--prompt", .options = options};
  return beginning + write_texts(*make_text_model(model), tokenizer, {text})[0].text;
}

}  // namespace lockstep
