// SPDX-License-Identifier: Apache-2.0
#include "json/json_damage.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

/// Returns the last escape \uD800 to \uDFFF in the last 12 bytes of a text; empty if there is none.
std::string_view surrogate_at_end_of(std::string_view text) {
  text.remove_prefix(text.size() - std::min<size_t>(text.size(), 12));
  for (size_t at = text.rfind("\\u"); at != std::string_view::npos;
       at = at > 0 ? text.rfind("\\u", at - 1) : at) {
    const std::string_view escape = text.substr(at, 6);
    const std::string digits = lower_case(std::string(escape.substr(2)));
    if (digits >= "d8" && digits < "e") return escape;
    if (at == 0) break;
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
