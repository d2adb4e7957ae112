// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "lockstep/comm/world.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/huggingface/writer.h"
#include "lockstep/program/command_line.h"
#include "lockstep/program/program.h"
#include "lockstep/writing/write_texts.h"

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
           "the folder of a run or of snapshots (its best one, else its newest), a snapshot, or a Hugging "
           "Face folder",
           {.is_required = true, .is_path = true});
  line.add("--prompt", options.prompt.text, "the beginning of the text");
  line.add("--input", options.input,
           "JSON lines {\"prompt\": ...}, optionally with id, max_new_tokens, temperature, top_k, top_p, "
           "repetition_penalty, seed and stop, which override the options; - reads the standard input",
           {.type = "FILE", .is_path = true, .excludes = "--prompt"});
  line.add("--output", options.output, "write the results of --input to this file instead of the terminal",
           {.type = "FILE", .is_path = true});
  line.add("--tokens,--max-new-tokens,--max_new_tokens", sampling.tokens, "generate at most this many tokens",
           {.least = 0});
  line.add("--temperature", sampling.temperature, "0 always takes the most likely token");
  line.add("--top-k,--top_k", sampling.top_k, "draw from the k most likely tokens; 0 draws from all",
           {.least = 0});
  line.add("--top-p,--top_p", sampling.top_p,
           "draw from the most likely tokens that have this probability together");
  line.add("--repetition-penalty,--repetition_penalty", sampling.repetition_penalty,
           "a value above 1 makes earlier tokens less likely");
  line.add("--stop", options.prompt.stop_texts,
           "end the generated text before TEXT; can be given several times", {.type = "TEXT"});
  line.add("--seed", sampling.seed, "the seed of the random draws", {.least = 0});
  line.add("--batch-size,--batch_size", options.limits.texts,
           "texts of --input to generate at once; no result depends on it", {.least = 1});
  line.add("--threads", options.threads, "the number of threads", {.least = 1});
}

std::string read_prompts(const std::string& path) {
  return path == "-" ? read_input() : read_named_file(path, "--input");
}

/// Generates a single text and prints it token by token.
void write_on_terminal(const Writer& writer, TextPrompt prompt) {
  prompt.source = "--prompt";
  prompt.sink = write_output;
  const Tokenizer& tokenizer = *writer.tokenizer;
  if (!prompt.text.empty())
    tokenizer.encode(prompt.text, prompt.source);  // throws before anything is printed
  write_output(prompt.text.empty() ? tokenizer.decode(tokenizer.beginning()) : prompt.text);
  write_texts(*make_text_model(*writer.model), tokenizer, {prompt});
  write_output("\n");
}

/// Writes the results in the order of the lines, each one as soon as all earlier ones are complete.
void answer_lines(const Writer& writer, const Options& options) {
  const std::string source = options.input == "-" ? "the standard input" : options.input;
  const std::vector<PromptLine> lines =
      read_prompt_lines(read_prompts(options.input), source, options.prompt);
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
                    write_output(answers[shown]);
                  else
                    all += answers[shown];
              });
  if (!options.output.empty()) write_output_to(options.output, all);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Generates text with a model that train_gpt has trained");
  Options options;
  describe(line, options);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    require(options.output.empty() || !options.input.empty(), "--output needs --input");
    require_valid(options.prompt.options, "--");
    for (const std::string& stop : options.prompt.stop_texts)
      require(!stop.empty(), "--stop: the text must not be empty");
    set_threads(options.threads);
    const Writer writer = load_writer(options.snapshot);
    if (options.input.empty())
      write_on_terminal(writer, options.prompt);
    else
      answer_lines(writer, options);
    return 0;
  });
}
