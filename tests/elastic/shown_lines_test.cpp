// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/elastic/messages.h"

namespace lockstep {
namespace {

TEST(ShownLines, ARedrawnLineIsShownOnce) {
  const std::string bar = "\rstep 1/3\x1b[K\rstep 2/3\x1b[K\r\x1b[Kerror: no memory\nplain\n";
  EXPECT_EQ(last_shown_lines(bar, 20), (std::vector<std::string>{"error: no memory", "plain"}));
  EXPECT_EQ(last_shown_lines("one\ntwo\nno end", 2), (std::vector<std::string>{"two", "no end"}));
}

}  // namespace
}  // namespace lockstep
