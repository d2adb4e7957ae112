// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <iostream>
#include <iterator>

#include "comm/world.h"
#include "config/command_line.h"
#include "core/error.h"
#include "core/file.h"
#include "train/writer.h"
#include "writing/prompt_lines.h"

using namespace lockstep;

namespace {

struct Options {
  std::string snapshot;
  TextPrompt prompt;
  std::string input, output;
  BatchLimits limits;
  int threads = available_cores();
};

void describe(CommandLine& line, Options& options) {
  GenerateOptions& sampling = options.prompt.options;
  line.add("--snapshot", options.snapshot,
           "a snapshot, or a directory of snapshots (its best, else its newest)")
      .required();
  CommandOption prompt =
      line.add("--prompt", options.prompt.text, "what the text begins with").shows_default();
  line.add("--input", options.input,
           "lines of JSON {\"prompt\": ...}, with id, max_new_tokens, temperature, top_k, top_p, "
           "repetition_penalty, seed and stop where they differ; -: the standard input")
      .type_name("FILE")
      .excludes(prompt);
  line.add("--output", options.output, "where the answers to --input go, instead of the terminal")
      .type_name("FILE");
  line.add("--tokens,--max-new-tokens,--max_new_tokens", sampling.tokens, "how many to write at most")
      .shows_default()
      .whole_from(0);
  line.add("--temperature", sampling.temperature, "0 takes the likeliest each time").shows_default();
  line.add("--top-k,--top_k", sampling.top_k, "draw from the k likeliest only; 0: from all")
      .shows_default()
      .whole_from(0);
  line.add("--top-p,--top_p", sampling.top_p, "draw from the likeliest that have this probability together")
      .shows_default();
  line.add("--repetition-penalty,--repetition_penalty", sampling.repetition_penalty,
           "above 1, what was there before is less likely")
      .shows_default();
  line.add("--stop", options.prompt.stop_texts, "the text ends before this; may be given several times")
      .type_name("TEXT")
      .one_at_a_time();
  line.add("--seed", sampling.seed, "another seed, another text").shows_default().whole_from(0);
  line.add("--batch-size,--batch_size", options.limits.texts,
           "texts of --input at once; no text depends on it")
      .shows_default()
      .whole_from(1);
  line.add("--threads", options.threads, "threads").shows_default().whole_from(1);
}

std::string read_input(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "--input: ", path, " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A single text, on the terminal as it is written.
void write_on_terminal(const Writer& writer, TextPrompt prompt) {
  prompt.source = "--prompt";
  prompt.sink = [](std::string_view piece) { std::cout << piece << std::flush; };
  const Tokenizer& tokenizer = *writer.tokenizer;
  if (!prompt.text.empty()) tokenizer.encode(prompt.text, prompt.source);  // refused before anything is shown
  std::cout << (prompt.text.empty() ? tokenizer.decode(tokenizer.beginning()) : prompt.text) << std::flush;
  write_texts(*make_text_model(*writer.model), tokenizer, {prompt});
  std::cout << "\n";
}

/// The answers in the order of the lines, each as soon as those before it are there.
void answer_lines(const Writer& writer, const Options& options) {
  const std::string source = options.input == "-" ? "the standard input" : options.input;
  const std::vector<PromptLine> lines = read_prompt_lines(read_input(options.input), source, options.prompt);
  std::vector<TextPrompt> prompts;
  for (const PromptLine& line : lines) prompts.push_back(line.prompt);
  std::vector<std::string> answers(lines.size());
  size_t shown = 0;
  std::string all;
  write_texts(*make_text_model(*writer.model), *writer.tokenizer, prompts, options.limits,
              [&](size_t index, const TextContinuation& continuation) {
                answers[index] = to_json_line(lines[index], continuation) + "\n";
                for (; shown < answers.size() && !answers[shown].empty(); ++shown)
                  if (options.output.empty())
                    std::cout << answers[shown] << std::flush;
                  else
                    all += answers[shown];
              });
  if (!options.output.empty()) write_file(options.output, all);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Writes text with a model that train_gpt has trained");
  Options options;
  describe(line, options);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    require(options.output.empty() || !options.input.empty(), "--output is for the answers to --input");
    require_valid(options.prompt.options, "--");
    for (const std::string& stop : options.prompt.stop_texts)
      require(!stop.empty(), "--stop: an empty text would end every text");
    set_threads(options.threads);
    const Writer writer = load_writer(options.snapshot);
    if (options.input.empty())
      write_on_terminal(writer, options.prompt);
    else
      answer_lines(writer, options);
    return 0;
  });
}
