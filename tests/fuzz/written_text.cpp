// SPDX-License-Identifier: Apache-2.0
// A generated text, token by token, and two stop texts.
#include "fuzz/fuzz.h"
#include "lockstep/tokenizer/utf8.h"
#include "lockstep/writing/write_texts.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const auto parts = fuzz::parts_of(fuzz::text_of(data, bytes), 3);
  // Stop texts are UTF-8. U+FFFD stands for bytes that are not. It is no such byte itself, so it stops no
  // text.
  std::vector<std::string> stop_texts;
  for (const size_t part : {1, 2}) {
    const bool is_text = fuzz::accepts([&] { check_utf8(parts[part], "a stop text"); });
    const bool has_replacement = parts[part].find("\xEF\xBF\xBD") != std::string::npos;
    if (!parts[part].empty() && is_text && !has_replacement) stop_texts.push_back(parts[part]);
  }
  std::string shown;
  WrittenText text(stop_texts, [&](std::string_view piece) {
    check_utf8(piece, "a piece");
    shown += piece;
  });
  for (size_t begin = 0; begin < parts[0].size(); begin += 3)
    if (!text.add(std::string_view(parts[0]).substr(begin, 3))) break;
  text.finish();
  fuzz::check(shown == text.text(), "the pieces are not the text");
  for (const std::string& stop : stop_texts)
    fuzz::check(shown.find(stop) == std::string::npos, "the text has a stop text");
  return 0;
}
