// SPDX-License-Identifier: Apache-2.0
#include "writing/written_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

/// The start of some bytes: a valid character (RFC 3629), a character that is cut at their end, or an invalid
/// sequence. An invalid sequence ends before the first byte that cannot belong to it.
struct Character {
  size_t bytes;
  bool is_valid;
  bool is_cut;
};

Character first_character(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and code points beyond U+10FFFF.
  const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (at(i) < (i == 1 ? least : 0x80) || at(i) > (i == 1 ? most : 0xBF)) return {i, false, false};
  }
  return {length, true, false};
}

}  // namespace

WrittenText::WrittenText(std::vector<std::string> stop_texts, TextSink sink)
    : stop_texts_(std::move(stop_texts)), sink_(std::move(sink)) {
  for (const std::string& stop : stop_texts_) require(!stop.empty(), "stop: a stop text must not be empty");
}

bool WrittenText::add(std::string_view bytes) {
  held_ += bytes;
  size_t first = std::string::npos;
  for (const std::string& stop : stop_texts_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    hand_out(first, true);
    held_.clear();
    return false;
  }
  hand_out(held_.size() - possible_stop(), false);
  return true;
}

void WrittenText::finish() { hand_out(held_.size(), true); }

size_t WrittenText::possible_stop() const {
  size_t most = 0;
  for (const std::string& stop : stop_texts_)
    for (size_t count = std::min(held_.size(), stop.size() - 1); count > most; --count)
      if (held_.ends_with(std::string_view(stop).substr(0, count))) most = count;
  return most;
}

void WrittenText::hand_out(size_t bytes, bool is_end) {
  const std::string_view whole = std::string_view(held_).substr(0, bytes);
  std::string piece;
  size_t taken = 0;
  while (taken < whole.size()) {
    const Character next = first_character(whole.substr(taken));
    if (next.is_cut && !is_end) break;
    piece += next.is_valid ? whole.substr(taken, next.bytes) : replacement;
    taken += next.bytes;
  }
  held_.erase(0, taken);
  text_ += piece;
  if (sink_ && !piece.empty()) sink_(piece);
}

}  // namespace lockstep
