// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json, its tokenizer_config.json, and a text.
#include "fuzz/tokenizer_checks.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 3);
  fuzz::accepts(
      [&] { fuzz::check_tokenizer(*tokenizer_from_json(parts[0], "tokenizer.json", parts[1]), parts[2]); });
  return 0;
}
