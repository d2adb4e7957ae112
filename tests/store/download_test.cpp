// SPDX-License-Identifier: Apache-2.0
#include "store/download.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "store/sha256.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

TEST(Sha256, IsTheStandards) {
  // The examples of FIPS 180-4.
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Download, RefusesAWrongChecksum) {
  const TemporaryDirectory directory;
  write_text(directory / "poem.txt", "roses");
  const std::string url = "file://" + (directory / "poem.txt");
  EXPECT_EQ(download(url, sha256("roses")), "roses");
  try {
    download(url, sha256("violets"));
    FAIL() << "nothing was thrown";
  } catch (const UserError& failure) {
    const std::string message = failure.what();
    for (const std::string& part : {std::string("is refused"), sha256("roses"), sha256("violets")})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace lockstep
