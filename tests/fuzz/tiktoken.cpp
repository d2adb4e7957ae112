// SPDX-License-Identifier: Apache-2.0
// A *.tiktoken file, and a text.
#include <array>

#include "fuzz/tokenizer_checks.h"
#include "lockstep/tokenizer/byte_pair_tokenizer.h"
#include "lockstep/tokenizer/tiktoken_file.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static constexpr std::array names = {"gpt2.tiktoken", "cl100k.tiktoken", "llama3", "o200k", "other"};
  if (bytes < 1) return 0;
  const auto parts = fuzz::parts_of(fuzz::text_of(data + 1, bytes - 1), 2);
  fuzz::accepts([&] {
    fuzz::check_tokenizer(BytePairTokenizer(read_tiktoken(parts[0], names[data[0] % names.size()])),
                          parts[1]);
  });
  return 0;
}
