// SPDX-License-Identifier: Apache-2.0
// A file of encoded text in the cache.
#include "lockstep/language/token_file.h"

#include "fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static fuzz::MemoryFile file;
  file.set(fuzz::text_of(data, bytes));
  const TokenImage image = TokenImage::of_file(file.path(), 0, false);
  if (!image) return 0;
  const Marks marks = image.marks();
  if (marks.answers() > 0) marks.read(0, 1);
  const Tokens tokens = image.tokens();
  int32_t id = 0;
  if (tokens.size() > 0) tokens.copy(tokens.size() - 1, 1, &id);
  return 0;
}
