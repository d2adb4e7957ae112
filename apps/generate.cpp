// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "comm/world.h"
#include "config/command_line.h"
#include "train/writer.h"

using namespace lockstep;

int main(int argc, char** argv) {
  CommandLine line("Writes text with a model that train_gpt has trained");
  std::string snapshot, prompt;
  GenerateOptions options;
  int threads = available_cores();
  line.add("--snapshot", snapshot, "a snapshot, or a directory of snapshots (its best, else its newest)")
      .required();
  line.add("--prompt", prompt, "what the text begins with").shows_default();
  line.add("--tokens", options.tokens, "how many to write").shows_default().whole_from(0);
  line.add("--temperature", options.temperature, "0 takes the likeliest each time").shows_default();
  line.add("--top-k,--top_k", options.top_k, "draw from the k likeliest only; 0: from all")
      .shows_default()
      .whole_from(0);
  line.add("--seed", options.seed, "another seed, another text").shows_default().whole_from(0);
  line.add("--threads", threads, "threads").shows_default().whole_from(1);
  if (const std::optional<int> code = line.parse_or_say(argc, argv)) return *code;
  return run_alone([&] {
    set_threads(threads);
    const Writer writer = load_writer(snapshot);
    std::cout << write_text(*writer.model, *writer.tokenizer, prompt, options) << "\n";
    return 0;
  });
}
