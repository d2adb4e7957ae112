// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/build.h"

#include <gtest/gtest.h>
#include <regex>

#include "lockstep/core/version.h"

namespace lockstep {
namespace {

TEST(Build, NamesTheVersionTheFlagsAndTheCode) {
  const std::string text = build_text();
  EXPECT_TRUE(text.starts_with(version_text() + ", flags -")) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex(", code [0-9a-f]{16}$"))) << text;
}

TEST(Build, KnowsThePathOfTheProgram) { EXPECT_TRUE(program_path().ends_with("/program_tests")); }

}  // namespace
}  // namespace lockstep
