// SPDX-License-Identifier: Apache-2.0
#include "elastic/last_lines.h"

#include <sstream>

namespace lockstep {

void LastLines::add(std::string_view text) {
  text_ += text;
  if (text_.size() > 2 * most_bytes) text_.erase(0, text_.size() - most_bytes);
}

std::vector<std::string> LastLines::lines() const {
  const size_t begin = text_.size() > most_bytes ? text_.size() - most_bytes : 0;
  std::istringstream stream(text_.substr(begin));
  std::vector<std::string> all;
  for (std::string line; std::getline(stream, line);) {
    // What a terminal would show of a bar that was redrawn.
    line.erase(0, line.rfind('\r') + 1);
    for (size_t at = 0; (at = line.find("\x1b[K", at)) != std::string::npos;) line.erase(at, 3);
    all.push_back(line);
  }
  if (all.size() > most_lines) all.erase(all.begin(), all.end() - most_lines);
  return all;
}

}  // namespace lockstep
