// SPDX-License-Identifier: Apache-2.0
// Lines of examples to train on.
#include "data/examples.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz::accepts([&] {
    for (const Example& example : read_examples(fuzz::text_of(data, bytes), "x.jsonl"))
      fuzz::check(!example.answer.empty() && example.line > 0, "an example without an answer");
  });
  return 0;
}
