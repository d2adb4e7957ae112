// SPDX-License-Identifier: Apache-2.0
// Lines of examples to train on, and templates of conversations.
#include "fuzz/fuzz.h"
#include "lockstep/data/chat_template.h"
#include "lockstep/data/example_rows.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::accepts([&] {
    for (const Example& example : read_examples(fuzz::text_of(data, bytes), "x.jsonl"))
      fuzz::check((example.answer.empty() != example.messages.empty()) && example.line > 0,
                  "an example without an answer");
  });
  fuzz::accepts(
      [&] { read_examples(fuzz::text_of(data, bytes), "x.jsonl", {.prompt = "", .answer = "messages"}); });
  chat_template_of(std::string(fuzz::text_of(data, bytes)));
  return 0;
}
