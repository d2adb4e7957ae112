// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

TEST(Secret, AFileIsReadWithoutTheLinesEnd) {
  const TemporaryDirectory directory;
  write_text(directory / "secret", "0123456789abcdef\n");
  ASSERT_EQ(::chmod((directory / "secret").c_str(), 0600), 0);
  EXPECT_EQ(Secret::from_file(directory / "secret").bytes(), "0123456789abcdef");
}

TEST(Secret, AFileThatOthersMayReadIsRefused) {
  const TemporaryDirectory directory;
  write_text(directory / "secret", "0123456789abcdef\n");
  for (const mode_t mode : {0640, 0604}) {
    ASSERT_EQ(::chmod((directory / "secret").c_str(), mode), 0);
    EXPECT_THROW(Secret::from_file(directory / "secret"), UserError);
  }
}

TEST(Secret, AFileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const TemporaryDirectory directory;
  write_text(directory / "secret", "0123456789abcdef\n");
  ASSERT_EQ(::chmod((directory / "secret").c_str(), 0600), 0);
  ASSERT_EQ(::chown((directory / "secret").c_str(), 12345, 12345), 0);
  EXPECT_THROW(Secret::from_file(directory / "secret"), UserError);
}

TEST(Secret, AShortOrMissingOneIsRefused) {
  const TemporaryDirectory directory;
  EXPECT_THROW(Secret::from_text("too short"), UserError);
  EXPECT_THROW(Secret::from_text("0123456789abcde\n"), UserError);
  EXPECT_THROW(Secret::from_file(directory / "missing"), UserError);
  EXPECT_THROW(Secret::from_file(directory.path()), UserError);
}

TEST(Secret, RandomOnesDiffer) {
  EXPECT_EQ(Secret::random().bytes().size(), 64u);
  EXPECT_NE(Secret::random().bytes(), Secret::random().bytes());
}

TEST(Secret, TheCodeIsThatOfTheStandard) {
  // RFC 4231, test case 2.
  const std::string code = authentication_code("Jefe", "what do ya want for nothing?");
  EXPECT_EQ(code.size(), 32u);
  EXPECT_EQ(uint8_t(code[0]), 0x5b);
  EXPECT_EQ(uint8_t(code[31]), 0x43);
}

}  // namespace
}  // namespace lockstep
