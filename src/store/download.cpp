// SPDX-License-Identifier: Apache-2.0
#include "store/download.h"

#include "core/error.h"
#include "store/http.h"
#include "store/retry.h"
#include "store/s3_address.h"
#include "store/s3_store.h"
#include "store/sha256.h"

namespace lockstep {
namespace {

constexpr RetryPolicy download_retries{.attempts = 3};

void download_url(const std::string& url, NewFile& file) {
  HttpClient client;
  const HttpReply reply = with_retries(download_retries, [&] {
    HttpReply answer = client.perform({.url = url, .file = &file, .may_redirect = true});
    if (answer.is_busy()) throw TransientError(concat("the server answered ", answer.status));
    return answer;
  });
  require(reply.status < 400, "the server answered ", reply.status);
}

void download_object(const std::string& url, NewFile& file) {
  const S3Address address = parse_s3_address(url);
  require(!address.key.empty(), "it names a bucket, not an object");
  require(download_from_s3(address, file, download_retries), "there is no such object (404)");
}

}  // namespace

std::string sha256_of_file(const std::string& path) { return sha256(read_file(path).value_or("")); }

void download(const std::string& url, NewFile& file, const std::string& expected_sha256) {
  try {
    is_s3_address(url) ? download_object(url, file) : download_url(url, file);
  } catch (const Error& problem) {
    throw UserError(concat("cannot download ", url, ": ", problem.what()));
  }
  if (expected_sha256.empty()) return;
  const std::string actual = sha256_of_file(file.path_now());
  require(actual == expected_sha256, "the download of ", url, " is refused: its sha256 is ", actual, ", not ",
          expected_sha256);
}

}  // namespace lockstep
