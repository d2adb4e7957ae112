// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/progress.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

const ProgressState halfway{
    .step = 600, .total_steps = 1200, .loss = 1.87654, .per_second = 12345, .seconds_left = 83.4};

/// Returns the columns of UTF-8 text. Counts the bytes that do not continue a character.
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
  EXPECT_EQ(format_bar({.step = 3, .total_steps = 8, .loss = 1, .per_second = 1, .seconds_left = 1},
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
  state.per_second = 2.5e6;
  EXPECT_EQ(format_line(state), "step 600/1200  loss 1.8765  2.5M tokens/s  ETA 2:03:04");
  state.seconds_left = -1;
  state.per_second = 950;
  state.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(format_line(state), "step 600/1200  loss nan  950 tokens/s  ETA ?");
  state.per_second = std::numeric_limits<double>::infinity();
  state.seconds_left = std::numeric_limits<double>::infinity();
  EXPECT_NE(format_line(state).find("? tokens/s"), std::string::npos);
}

TEST(ProgressFormat, SamplesAreNoTokens) {
  ProgressState state = halfway;
  state.unit = "samples";
  EXPECT_EQ(format_line(state), "step 600/1200  loss 1.8765  12.3k samples/s  ETA 1:23");
}

TEST(ProgressFormat, DurationsAsAPersonSaysThem) {
  EXPECT_EQ(about(43), "about 40 seconds");
  EXPECT_EQ(about(170), "about 3 minutes");
  EXPECT_EQ(about(3700), "about 62 minutes");
  EXPECT_EQ(about(3 * 3600), "about 3 hours");
  EXPECT_EQ(about(86400 * 3), "about 3 days");
}

TEST(ReadingPace, IsTwoLinesASecondAndLaterOneInTen) {
  ReadingPace pace;
  int first_ten = 0;
  int next_minute = 0;
  for (int tick = 0; tick < 7000; ++tick) (tick < 1000 ? first_ten : next_minute) += pace.is_due(tick * 0.01);
  EXPECT_EQ(first_ten, 20);
  EXPECT_EQ(next_minute, 6);
}

/// Tests of Progress with a clock that the test sets.
class ProgressTest : public testing::Test {
 protected:
  Progress::Options options(int64_t total_steps, int64_t every_steps = 1) {
    return {.total_steps = total_steps, .every_steps = every_steps, .clock = [this] { return seconds_; }};
  }

  /// Returns the output, each line up to its first two blanks.
  static std::vector<std::string> begins(const std::ostringstream& out) {
    std::istringstream lines(out.str());
    std::vector<std::string> all;
    for (std::string line; std::getline(lines, line);) all.push_back(line.substr(0, line.find("  ")));
    return all;
  }

  static std::string epoch_text(int64_t first, int64_t last) {
    return first == last ? "epoch " + std::to_string(first) + "\n"
                         : "epochs " + std::to_string(first) + "-" + std::to_string(last) + "\n";
  }

  double seconds_ = 100;
  std::ostringstream errors_;
  std::ostringstream output_;
};

TEST_F(ProgressTest, WithoutATerminalLinesAtTheReadersPaceTheFirstAndTheLast) {
  {
    Progress progress(options(3000), {.interactive = false}, errors_, output_);
    for (int64_t step = 1; step <= 3000; ++step) {
      seconds_ += 0.01;
      progress.update(step, 2.0, 100);
      if (step == 120) progress.print("validation loss 1.9");
    }
  }
  const std::vector<std::string> lines = begins(errors_);
  ASSERT_EQ(lines.size(), 20U + 2 + 1 + 2)
      << "20 first lines, two of ten seconds each, the last one, a loss and a duration";
  EXPECT_EQ(lines[0], "step 1/3000");
  EXPECT_EQ(lines[3], "validation loss 1.9");
  EXPECT_EQ(lines[5], "about 30 seconds left");
  EXPECT_EQ(lines.back(), "step 3000/3000");
  EXPECT_EQ(errors_.str().find('\r'), std::string::npos);
  EXPECT_EQ(errors_.str().find('\x1b'), std::string::npos);
}

TEST_F(ProgressTest, LinesMayBeFurtherApart) {
  {
    Progress progress(options(25, 10), {.interactive = false}, errors_, output_);
    for (int64_t step = 1; step <= 25; ++step) {
      seconds_ += 0.6;
      progress.update(step, 2.0, 100);
    }
  }
  EXPECT_EQ(begins(errors_), (std::vector<std::string>{"step 1/25", "step 11/25", "step 25/25"}));
}

TEST_F(ProgressTest, EpochsThatWouldFloodAreToldTogether) {
  {
    Progress progress(options(1000), {.interactive = false}, errors_, output_);
    for (int64_t epoch = 0; epoch < 100; ++epoch) {
      progress.begin_epoch(epoch, epoch_text);
      seconds_ += 0.01;
    }
  }
  const std::vector<std::string> lines = begins(output_);
  ASSERT_EQ(lines.size(), 23U);
  EXPECT_EQ(lines[0], "epoch 0");
  EXPECT_EQ(lines[20], "epoch 20") << "the last epoch that has its own line";
  EXPECT_EQ(lines[21], "epochs 21-70");
  EXPECT_EQ(lines[22], "epochs 71-99");
  EXPECT_EQ(errors_.str(), "");
}

TEST_F(ProgressTest, OnATerminalEpochsStandAboveTheBar) {
  for (const bool shows_output : {true, false}) {
    std::ostringstream errors, output;
    {
      Progress progress(options(3), {.interactive = true, .columns = 30, .shows_output = shows_output},
                        errors, output);
      progress.update(1, 2.0, 100);
      progress.begin_epoch(1, epoch_text);
    }
    EXPECT_EQ(errors.str().find("\r\x1b[Kepoch 1\n\rstep 1/3") != std::string::npos, shows_output);
    EXPECT_EQ(output.str(), shows_output ? "" : "epoch 1\n");
  }
}

TEST_F(ProgressTest, ALongValidationIsAnnounced) {
  Progress progress(options(3), {.interactive = false}, errors_, output_);
  for (int batch = 0; batch <= 3; ++batch, seconds_ += 0.5) progress.validate(batch, 100);
  EXPECT_EQ(errors_.str(), "") << "a short validation must not be announced";
  seconds_ += 6;
  progress.validate(4, 100);
  progress.validate(5, 100);
  EXPECT_EQ(errors_.str(), "validating 4/100 batches  ETA 3:12\n") << "and then every ten seconds";
  seconds_ += 12;
  progress.validate(10, 100);
  EXPECT_NE(errors_.str().find("\nvalidating 10/100 batches  ETA 3:00\n"), std::string::npos)
      << errors_.str();
}

TEST_F(ProgressTest, OtherTextStandsAboveTheBar) {
  {
    Progress progress(options(3), {.interactive = true, .unicode = false, .columns = 30}, errors_, output_);
    progress.update(1, 2.0, 100);
    progress.print("a sample");
  }
  EXPECT_EQ(errors_.str(),
            "\rstep 1/3  loss 2.0000\x1b[K"
            "\r\x1b[K"
            "a sample\n"
            "\rstep 1/3  loss 2.0000\x1b[K"
            "\n");
}

TEST_F(ProgressTest, NothingIsDrawnBeforeTheFirstStep) {
  { Progress(options(3), {.interactive = true}, errors_, output_).print("hello\n"); }
  EXPECT_EQ(errors_.str(), "hello\n");
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
