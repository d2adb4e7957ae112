// SPDX-License-Identifier: Apache-2.0
#include "writing/written_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

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
    const Utf8Character next = first_character(whole.substr(taken));
    if (next.state == Utf8Character::State::cut && !is_end) break;
    piece += next.is_valid() ? whole.substr(taken, next.bytes) : replacement;
    taken += next.bytes;
  }
  held_.erase(0, taken);
  text_ += piece;
  if (sink_ && !piece.empty()) sink_(piece);
}

}  // namespace lockstep
