// SPDX-License-Identifier: Apache-2.0
// GPT-2's vocab.json and merges.txt, the maps beside them, and a text.
#include "fuzz/tokenizer_checks.h"
#include "lockstep/tokenizer/byte_pair_tokenizer.h"
#include "lockstep/tokenizer/tokenizer_json.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 5);
  fuzz::accepts([&] {
    TokenizerFile file = read_vocabulary_and_merges(parts[0], "vocab.json", parts[1], "merges.txt");
    TokenizerConfig config;
    if (!parts[2].empty()) config = read_tokenizer_config(parts[2], "tokenizer_config.json");
    if (!parts[3].empty()) {
      read_special_tokens_map(parts[3], "special_tokens_map.json", config);
      read_added_tokens_map(parts[3], "added_tokens.json", config);
    }
    file.added = config.added;
    fuzz::check_tokenizer(BytePairTokenizer(byte_pair_model(file, "vocab.json")), parts[4]);
  });
  return 0;
}
