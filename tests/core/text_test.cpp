// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/text.h"

#include <gtest/gtest.h>
#include <vector>

#include "tests/support/program.h"

namespace lockstep {
namespace {

TEST(Text, JoinsWhatIsNotEmpty) {
  EXPECT_EQ(joined(std::vector<std::string>{}), "");
  EXPECT_EQ(joined(std::vector<std::string>{"", "a", "", "b", ""}), "a, b");
  EXPECT_EQ(joined(std::vector<std::string>{"a", "b"}, "; "), "a; b");
}

TEST(Text, TrimsBothEnds) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(" \r\n"), "");
  EXPECT_EQ(trimmed("a"), "a");
}

TEST(Text, QuotesForAShellWhatIsNotPlain) {
  EXPECT_EQ(shell_quoted("runs/gpt-2_x.1=a"), "runs/gpt-2_x.1=a");
  EXPECT_EQ(shell_quoted(""), "''");
  for (const std::string text :
       {"it's $HOME", "~/x", "a;b", "Straße", "`ls`", "\\ \"*\"", "'", "a\nb", "(!)"}) {
    const Outcome outcome = run_command("printf %s " + shell_quoted(text));
    EXPECT_EQ(outcome.out, text) << outcome.errors;
  }
}

TEST(Text, WritesBytesAsDigits) {
  EXPECT_EQ(hexadecimal(std::string_view("\x00\x0f\x7f\x80\xff", 5)), "000f7f80ff");
}

TEST(Text, WritesNumbersInOtherForms) {
  EXPECT_EQ(hexadecimal(255, 4), "00ff");
  EXPECT_EQ(hexadecimal(0x123456789abcdef0, 1), "123456789abcdef0");
  EXPECT_EQ(zero_padded(7, 3), "007");
  EXPECT_EQ(zero_padded(12345, 3), "12345");
  EXPECT_EQ(fixed_text(2.345, 1), "2.3");
  EXPECT_EQ(fixed_text(-0.5, 0), "-0");
  EXPECT_EQ(fixed_text(1e22, 2), "10000000000000000000000.00");
  EXPECT_EQ(exact_text(0.75), "0x1.8p-1");
  EXPECT_EQ(exact_text(-3), "-0x1.8p+1");
  EXPECT_EQ(left_aligned("ok", 4) + "|", "ok  |");
  EXPECT_EQ(left_aligned("longer", 4), "longer");
}

TEST(Text, OneIsSingular) {
  EXPECT_EQ(counted(1, "layer"), "1 layer");
  EXPECT_EQ(counted(0, "layer"), "0 layers");
  EXPECT_EQ(counted(4, "layer"), "4 layers");
}

TEST(Text, WritesSizesAsAPersonReadsThem) {
  EXPECT_EQ(bytes_text(84), "84 bytes");
  EXPECT_EQ(bytes_text(1023.6), "1.0 KiB");
  EXPECT_EQ(bytes_text(3.1 * 1024), "3.1 KiB");
  EXPECT_EQ(bytes_text(24.0 * 1024 * 1024 * 1024), "24 GiB");
  EXPECT_EQ(bytes_text(1.2e12), "1.1 TiB");
  EXPECT_EQ(bytes_text(1023.7 * 1024 * 1024), "1.0 GiB");
}

TEST(Text, ASlipOfTheKeyboardIsFewEditsForItsLength) {
  EXPECT_EQ(slips_between("lr", "la"), std::nullopt);
  EXPECT_EQ(slips_between("stpes", "steps"), 1U);
  EXPECT_EQ(slips_between("flash", "fresh"), std::nullopt) << "two edits of five bytes";
  EXPECT_EQ(slips_between("max-restart", "max-restarts"), 1U);
  EXPECT_EQ(slips_between("--nporc", "--nproc"), 1U) << "neighbours swapped";
  EXPECT_EQ(slips_between("same", "same"), 0U);
  EXPECT_EQ(slips_between("kittens_", "sitting_"), std::nullopt) << "three edits";
  EXPECT_EQ(slips_between("lerning_rat", "learning_rate"), 2U);
}

TEST(Text, LongLinesContinueInTheirColumn) {
  const std::string text =
      "usage\n  --first   one two three four\n  a very long line without a column\n    unbreakable_word_x\n";
  EXPECT_EQ(wrapped_lines(text, 20),
            "usage\n"
            "  --first   one two\n"
            "      three four\n"
            "  a very long line\n"
            "  without a column\n"
            "    unbreakable_word_x\n");
  EXPECT_EQ(wrapped_lines("a blank ends this     \n", 17), "a blank ends this\n");
  EXPECT_EQ(wrapped_lines("  --a  one two three\n", 16), "  --a  one two\n       three\n");
}

}  // namespace
}  // namespace lockstep
