// SPDX-License-Identifier: Apache-2.0
#include "json/json_damage.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "json/utf8.h"

namespace lockstep {
namespace {

/// Returns whether an escape \uXXXX whose first digits are at least `first` and less than `end` is at a
/// place.
bool has_escape(std::string_view text, size_t at, std::string_view first, std::string_view end) {
  const size_t before = text.substr(0, at).find_last_not_of('\\') + 1;  // 0 without another character
  const std::string digits = lower_case(std::string(text.substr(at + 2, 2)));
  return text.substr(at, 2) == "\\u" && (at - before) % 2 == 0 && digits >= first && digits < end;
}

/// Returns the surrogate without its other half by which a text that was read so far is damaged, or nothing.
/// A parser gives up after a low surrogate, or when another character or escape follows a high one.
std::string_view surrogate_at_end_of(std::string_view text) {
  constexpr size_t escape_bytes = 6;
  for (const size_t rest : {0, 1, 2, 6}) {
    if (text.size() < escape_bytes + rest) break;
    const size_t at = text.size() - rest - escape_bytes;
    const bool is_lone =
        rest == 0 ? has_escape(text, at, "dc", "e0")
                  : has_escape(text, at, "d8", "dc") && (text[at + escape_bytes] == '\\') == (rest > 1);
    if (is_lone) return text.substr(at, escape_bytes);
  }
  return {};
}

}  // namespace

std::string json_damage(std::string_view text, size_t byte) {
  const size_t last = std::max<size_t>(byte, 1) - 1;  // the byte that the parser has read last
  const std::string place = concat(" at byte ", byte);
  if (last >= text.size()) return "it ends too early";
  for (const char* name : {"NaN", "Infinity"})
    if (text.substr(last).starts_with(name)) return concat(name, place, " is no number of JSON");
  if (const std::string_view escape = surrogate_at_end_of(text.substr(0, last + 1)); !escape.empty())
    return concat("a lone surrogate ", escape, place);
  if (text[last] == '\0') return "a NUL" + place;
  if (static_cast<unsigned char>(text[last]) < ' ') return "a control character" + place;
  size_t begin = last;
  while (begin > 0 && last - begin < 3 && (text[begin] & 0xC0) == 0x80) --begin;
  const bool is_ascii = (text[last] & 0x80) == 0;
  return (is_ascii || first_character(text.substr(begin)).is_valid() ? "damaged" : "not UTF-8") + place;
}

}  // namespace lockstep
