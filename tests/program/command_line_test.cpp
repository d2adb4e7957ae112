// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/command_line.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

struct Values {
  int64_t epochs = 5;
  double seconds = 0.5;
  std::string device = "cpu";
  bool quick = false;
  std::vector<std::string> only;
  std::vector<std::string> accept;
};

/// Returns the result of parsing these words, or the text of the error.
std::string outcome(const std::vector<const char*>& words, Values& values) {
  CommandLine line("Tries options");
  line.add("epochs,--epochs", values.epochs, "passes", {.least = 1});
  line.add("--seconds", values.seconds, "", {.is_positive = true});
  line.add("--device", values.device, "", {.choices = {"cpu", "cuda"}});
  line.add_flag("--quick", values.quick);
  line.add("--only", values.only);
  line.add("--accept", values.accept, "", {.excludes = "--only"});
  std::vector<const char*> arguments = {"program"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  try {
    return line.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const UserError& problem) {
    return problem.what();
  }
}

TEST(CommandLine, WritesVariables) {
  Values values;
  EXPECT_EQ(outcome({"7", "--seconds=2", "--quick", "--only", "a", "--only", "b"}, values), "");
  EXPECT_EQ(values.epochs, 7);
  EXPECT_EQ(values.seconds, 2.0);
  EXPECT_EQ(values.device, "cpu");
  EXPECT_TRUE(values.quick);
  EXPECT_EQ(values.only, (std::vector<std::string>{"a", "b"}));
}

TEST(CommandLine, SaysWhatIsWrong) {
  Values values;
  EXPECT_EQ(outcome({"--epochs=0"}, values), "--epochs: expected a whole number from 1 up, not '0'");
  EXPECT_NE(outcome({"--seconds", "0"}, values).find("--seconds"), std::string::npos);
  EXPECT_NE(outcome({"--device", "tpu"}, values).find("tpu not in {cpu,cuda}"), std::string::npos);
  EXPECT_NE(outcome({"--only", "a", "--accept", "b"}, values).find(" excludes --"), std::string::npos);
  EXPECT_EQ(outcome({"--other"}, values), "The following argument was not expected: --other");
}

TEST(CommandLine, TakesEverySeedOf64Bits) {
  const auto seed_of = [](const char* word) {
    uint64_t seed = 7;
    CommandLine line;
    line.add("--seed", seed, "", {.least = 0});
    const std::vector<const char*> words = {"program", "--seed", word};
    line.parse(3, words.data());
    return seed;
  };
  EXPECT_EQ(seed_of("9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed_of("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(seed_of("+3"), 3U);
  EXPECT_THROW(seed_of("18446744073709551616"), UserError);
  EXPECT_THROW(seed_of("-1"), UserError);
}

TEST(CommandLine, AnswersHelpAndVersion) {
  Values values;
  const std::string help = outcome({"--help"}, values);
  EXPECT_NE(help.find("Tries options"), std::string::npos);
  // CLI11 prints a default as =5, and version 2.4 prints [5].
  EXPECT_TRUE(help.find("=5 ") != std::string::npos || help.find("[5]") != std::string::npos) << help;
  EXPECT_EQ(outcome({"--version"}, values).find("Lockstep "), 0u);
}

TEST(CommandLine, TakesItsOwnBesidesAConfiguration) {
  int64_t steps = 0;
  CommandLine line;
  line.add("--steps", steps, "", {.least = 1});
  std::vector<std::string> arguments = {"--first", "--steps", "4", "last"};
  line.take_from(arguments, "program");
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(arguments, (std::vector<std::string>{"--first", "last"}));

  arguments = {"--steps", "x"};
  try {
    line.take_from(arguments, "program");
    FAIL() << "nothing was thrown";
  } catch (const UserError& problem) {
    EXPECT_EQ(
        problem.what(),
        std::string("command line: --steps: expected a whole number from 1 up, not 'x'; see program --help"));
  }
}

}  // namespace
}  // namespace lockstep
