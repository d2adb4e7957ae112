// SPDX-License-Identifier: Apache-2.0
#include "language/download.h"

#include <vector>

#include "core/error.h"
#include "store/http.h"
#include "store/retry.h"
#include "store/s3_address.h"
#include "store/s3_store.h"
#include "store/sha256.h"

namespace lockstep {
namespace {

constexpr RetryPolicy download_retries{.attempts = 3};

/// Returns the header that requests an object only if it is not of this version. Not all servers give an ETag
/// priority over a date, which misses a second change in one second, so the date is not sent with an ETag.
std::vector<std::string> headers_for(const ObjectVersion& kept) {
  if (!kept.etag.empty()) return {"If-None-Match: " + kept.etag};
  if (!kept.last_modified.empty()) return {"If-Modified-Since: " + kept.last_modified};
  return {};
}

HttpReply download_url(const std::string& url, NewFile& file, const ObjectVersion& kept) {
  HttpClient client;
  HttpReply reply = with_retries(download_retries, [&] {
    HttpReply answer =
        client.perform({.url = url, .headers = headers_for(kept), .file = &file, .may_redirect = true});
    if (answer.is_busy()) throw TransientError(concat("the server answered ", answer.status));
    return answer;
  });
  require(reply.status < 300 || (reply.status == 304 && kept.is_known()), "the server answered ",
          reply.status);
  return reply;
}

HttpReply download_object(const std::string& url, NewFile& file, const ObjectVersion& kept) {
  const S3Address address = parse_s3_address(url);
  require(!address.key.empty(), "it names a bucket, not an object");
  HttpReply reply = download_from_s3(address, file, download_retries, headers_for(kept));
  require(reply.status != 404, "there is no such object (404)");
  return reply;
}

}  // namespace

std::string sha256_of_file(const std::string& path) { return sha256(read_file(path).value_or("")); }

std::optional<ObjectVersion> download(const std::string& url, NewFile& file,
                                      const std::string& expected_sha256, const ObjectVersion& kept) {
  HttpReply reply;
  try {
    reply = is_s3_address(url) ? download_object(url, file, kept) : download_url(url, file, kept);
  } catch (const Error& problem) {
    throw UserError(concat("cannot download ", url, ": ", problem.what()));
  }
  if (reply.status == 304) return {};
  const std::string actual = expected_sha256.empty() ? "" : sha256_of_file(file.path_now());
  require(actual == expected_sha256, "the download of ", url, " is refused: its sha256 is ", actual, ", not ",
          expected_sha256);
  ObjectVersion version{reply.headers["etag"], reply.headers["last-modified"]};
  // A change later in this second would have the same date, so such an object is always taken for changed.
  const bool is_new = !version.last_modified.empty() && version.last_modified == reply.headers["date"];
  if (version.etag.empty() && is_new) version.last_modified = "Thu, 01 Jan 1970 00:00:00 GMT";
  return version;
}

}  // namespace lockstep
