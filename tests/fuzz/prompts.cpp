// SPDX-License-Identifier: Apache-2.0
// Lines of prompts. Their answers are JSON.
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "lockstep/writing/write_texts.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::accepts([&] {
    for (const PromptLine& line : read_prompt_lines(fuzz::text_of(data, bytes), "x.jsonl", {})) {
      const auto answer = nlohmann::json::parse(to_json_line(line, {.text = "answer"}));
      fuzz::check(answer["prompt"] == line.prompt.text, "another prompt");
    }
  });
  return 0;
}
