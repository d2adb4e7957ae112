// SPDX-License-Identifier: Apache-2.0
#include "train/progress.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

const ProgressState halfway{
    .step = 600, .total_steps = 1200, .loss = 1.87654, .tokens_per_second = 12345, .seconds_left = 83.4};

/// Columns that UTF-8 text takes: bytes that do not continue a character.
int columns_of(const std::string& text) {
  int columns = 0;
  for (const unsigned char byte : text) columns += (byte & 0xC0) != 0x80;
  return columns;
}

TEST(ProgressFormat, ABarWithLossTimeAndSpeed) {
  EXPECT_EQ(format_bar(halfway, {.interactive = true, .unicode = false, .columns = 100}),
            "[###############---------------]  step 600/1200  loss 1.8765  ETA 1:23  12.3k tokens/s");
}

TEST(ProgressFormat, BlocksOnlyWhereTheTerminalShowsThem) {
  EXPECT_EQ(format_bar({.step = 3, .total_steps = 8, .loss = 1, .tokens_per_second = 1, .seconds_left = 1},
                       {.interactive = true, .unicode = true, .columns = 65}),
            "▕██████▍          ▏  step 3/8  loss 1.0000  ETA 0:01  1 tokens/s");
}

TEST(ProgressFormat, NeverWiderThanTheTerminal) {
  for (const bool unicode : {false, true}) {
    for (int columns = 1; columns < 130; ++columns) {
      const std::string text =
          format_bar(halfway, {.interactive = true, .unicode = unicode, .columns = columns});
      EXPECT_LT(columns_of(text), columns + 1 - (columns > 1)) << text;
    }
  }
}

TEST(ProgressFormat, ANarrowTerminalKeepsWhatMatters) {
  EXPECT_EQ(format_bar(halfway, {.columns = 20}), "step 600/1200");
  EXPECT_EQ(format_bar(halfway, {.columns = 30}), "step 600/1200  loss 1.8765");
  EXPECT_EQ(format_bar(halfway, {.columns = 40}), "step 600/1200  loss 1.8765  ETA 1:23");
}

TEST(ProgressFormat, TheBarIsFullExactlyAtTheEnd) {
  ProgressState state = halfway;
  state.step = 1199;
  EXPECT_NE(format_bar(state, {.columns = 120}).find("-]"), std::string::npos);
  state.step = 1200;
  EXPECT_EQ(format_bar(state, {.columns = 120}).find('-'), std::string::npos);
}

TEST(ProgressFormat, PlainLines) {
  EXPECT_EQ(format_line(halfway), "step 600/1200  loss 1.8765  12.3k tokens/s  ETA 1:23");
}

TEST(ProgressFormat, NumbersOfAnySize) {
  ProgressState state = halfway;
  state.seconds_left = 2 * 3600 + 3 * 60 + 4;
  state.tokens_per_second = 2.5e6;
  EXPECT_EQ(format_line(state), "step 600/1200  loss 1.8765  2.5M tokens/s  ETA 2:03:04");
  state.seconds_left = -1;
  state.tokens_per_second = 950;
  state.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(format_line(state), "step 600/1200  loss nan  950 tokens/s  ETA ?");
  state.tokens_per_second = std::numeric_limits<double>::infinity();
  state.seconds_left = std::numeric_limits<double>::infinity();
  EXPECT_NE(format_line(state).find("? tokens/s"), std::string::npos);
}

TEST(Progress, WithoutATerminalALineEverySoOften) {
  std::ostringstream out;
  {
    Progress progress(25, 0, 10, out, {.interactive = false});
    for (int64_t step = 1; step <= 25; ++step) {
      progress.update(step, 2.0, 100);
      if (step == 12) progress.print("validation loss 1.9");
    }
  }
  std::istringstream lines(out.str());
  std::vector<std::string> begins;
  for (std::string line; std::getline(lines, line);) begins.push_back(line.substr(0, line.find("  ")));
  EXPECT_EQ(begins, (std::vector<std::string>{"step 1/25", "step 10/25", "validation loss 1.9", "step 20/25",
                                              "step 25/25"}));
  EXPECT_EQ(out.str().find('\r'), std::string::npos);
  EXPECT_EQ(out.str().find('\x1b'), std::string::npos);
}

TEST(Progress, OtherTextStandsAboveTheBar) {
  std::ostringstream out;
  {
    Progress progress(3, 0, 10, out, {.interactive = true, .unicode = false, .columns = 30});
    progress.update(1, 2.0, 100);
    progress.print("a sample");
  }
  EXPECT_EQ(out.str(),
            "\rstep 1/3  loss 2.0000\x1b[K"
            "\r\x1b[K"
            "a sample\n"
            "\rstep 1/3  loss 2.0000\x1b[K"
            "\n");
}

TEST(Progress, NothingIsDrawnBeforeTheFirstStep) {
  std::ostringstream out;
  {
    Progress progress(3, 0, 10, out, {.interactive = true});
    progress.print("hello\n");
  }
  EXPECT_EQ(out.str(), "hello\n");
}

TEST(Display, AFileIsNoTerminal) {
  testing::internal::CaptureStderr();
  const Display display = Display::of_stderr();
  testing::internal::GetCapturedStderr();
  EXPECT_FALSE(display.interactive);
  EXPECT_GT(display.columns, 0);
}

class LocaleTest : public testing::Test {
 protected:
  ~LocaleTest() override {
    for (const char* variable : {"LC_ALL", "COLUMNS"}) unsetenv(variable);
  }
};

TEST_F(LocaleTest, SaysWhetherBlocksCanBeShownAndHowManyColumns) {
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(Display::of_stderr().unicode);
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  EXPECT_TRUE(Display::of_stderr().unicode);
  setenv("LC_ALL", "C.utf8", 1);
  EXPECT_TRUE(Display::of_stderr().unicode);
  setenv("COLUMNS", "57", 1);
  testing::internal::CaptureStderr();
  const int columns = Display::of_stderr().columns;
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(columns, 57);
}

}  // namespace
}  // namespace lockstep
