// SPDX-License-Identifier: Apache-2.0
#include "store/download.h"

#include "core/error.h"
#include "store/http.h"
#include "store/open_s3.h"
#include "store/retry.h"
#include "store/s3_address.h"
#include "store/sha256.h"

namespace lockstep {
namespace {

constexpr RetryPolicy download_retries{.attempts = 3};

std::string contents_of_url(const std::string& url) {
  HttpClient client;
  const HttpReply reply = with_retries(download_retries, [&] {
    HttpReply answer = client.perform({.url = url, .may_redirect = true});
    if (answer.status == 429 || answer.status >= 500)
      throw TransientError(concat("the server answered ", answer.status));
    return answer;
  });
  require(reply.status < 400, "the server answered ", reply.status);
  return reply.body;
}

std::string contents_of_object(const std::string& url) {
  const S3Address address = parse_s3_address(url);
  require(!address.key.empty(), "it names a bucket, not an object");
  auto contents = open_s3({.bucket = address.bucket, .key = ""}, download_retries)->get(address.key);
  require(contents.has_value(), "there is no such object (404)");
  return std::move(*contents);
}

}  // namespace

std::string download(const std::string& url, const std::string& expected_sha256) {
  std::string contents;
  try {
    contents = is_s3_address(url) ? contents_of_object(url) : contents_of_url(url);
  } catch (const Error& problem) {
    throw UserError(concat("cannot download ", url, ": ", problem.what()));
  }
  if (expected_sha256.empty()) return contents;
  const std::string actual = sha256(contents);
  require(actual == expected_sha256, "the download of ", url, " is refused: its sha256 is ", actual, ", not ",
          expected_sha256);
  return contents;
}

}  // namespace lockstep
