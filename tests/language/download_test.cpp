// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/download.h"

#include <gtest/gtest.h>

#include "lockstep/core/file.h"
#include "lockstep/store/sha256.h"
#include "support/http_server.h"
#include "support/small_files.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

TEST(Sha256, IsTheStandards) {
  // The examples of FIPS 180-4.
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/// Returns what download() writes to a new file.
std::string downloaded(const std::string& url, const std::string& expected_sha256 = "") {
  const TemporaryDirectory directory;
  NewFile file(directory / "text");
  download(url, file, expected_sha256);
  file.publish();
  return read_text(directory / "text");
}

TEST(Download, RefusesAWrongChecksum) {
  const TemporaryDirectory directory;
  write_text(directory / "poem.txt", "roses");
  const std::string url = "file://" + (directory / "poem.txt");
  EXPECT_EQ(downloaded(url, sha256("roses")), "roses");
  expect_contains(user_error([&] { downloaded(url, sha256("violets")); }),
                  {"is refused", sha256("roses"), sha256("violets")});
}

// The body of a failure is no text.
TEST(Download, WritesOnlyTheBodyOfASuccess) {
  int requests = 0;
  const HttpServer server([&](const std::string&) {
    ++requests;
    return requests == 1   ? http_reply("503 Busy", "come back later")
           : requests == 2 ? http_reply("302 Found", "elsewhere", "Location: /there\r\n")
                           : http_reply("200 OK", "roses");
  });
  EXPECT_EQ(downloaded(server.url() + "/poem"), "roses");
  EXPECT_EQ(requests, 3);
}

TEST(Download, AFileThatCannotBeWrittenIsNamed) {
  const HttpServer server([](const std::string&) { return http_reply("200 OK", "roses"); });
  const TemporaryDirectory directory;
  NewFile file(directory / "text");
  const SmallFiles limit(3);
  expect_contains(
      user_error([&] { download(server.url(), file); }),
      {"cannot download " + server.url(), "cannot write " + (directory / "text"), "File too large"});
}

}  // namespace
}  // namespace lockstep
