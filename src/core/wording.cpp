// SPDX-License-Identifier: Apache-2.0
#include "core/wording.h"

#include <utility>

namespace lockstep {

static Wording& words() {
  static Wording all;
  return all;
}

void set_wording(Wording wording) { words() = std::move(wording); }

std::string advice_about(const std::string& problem, const std::string& otherwise) {
  const auto found = words().find(problem);
  return found == words().end() ? otherwise : found->second;
}

}  // namespace lockstep
