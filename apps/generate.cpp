// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "command_line.h"
#include "train/language_model.h"

using namespace lockstep;

int main(int argc, char** argv) {
  CLI::App app("Writes text with a model that train_gpt has trained");
  std::string snapshot, prompt;
  GenerateOptions options;
  int threads = available_cores();
  app.add_option("--snapshot", snapshot,
                 "a snapshot, or a directory of snapshots (its best, else its newest)")
      ->required();
  app.add_option("--prompt", prompt, "what the text begins with")->capture_default_str();
  app.add_option("--tokens", options.tokens, "how many to write")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--temperature", options.temperature, "0 takes the likeliest each time")
      ->capture_default_str();
  app.add_option("--top-k,--top_k", options.top_k, "draw from the k likeliest only; 0: from all")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--seed", options.seed, "another seed, another text")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--threads", threads, "threads")->capture_default_str()->check(whole_number(1));
  if (const std::optional<int> code = parse_command_line(app, argc, argv)) return *code;
  return run_alone([&] {
    set_threads(threads);
    const Writer writer = load_writer(snapshot);
    std::cout << write_text(*writer.model, *writer.tokenizer, prompt, options) << "\n";
    return 0;
  });
}
