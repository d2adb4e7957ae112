// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/download.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/store/http.h"
#include "lockstep/store/s3_address.h"
#include "lockstep/store/s3_client.h"
#include "lockstep/store/sha256.h"

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

constexpr const char* version_heading = "lockstep download 1";

std::string path_of_version(const std::string& path) { return path + ".version"; }

/// Returns size and time of the last change, which tell a file from one that another process puts there.
std::string stamp_of(const struct stat& file) {
  return concat(file.st_size, " ", file.st_mtim.tv_sec, " ", file.st_mtim.tv_nsec);
}

std::string date_of(std::time_t time) {
  std::tm fields{};
  ::gmtime_r(&time, &fields);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &fields)};
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

std::optional<KeptDownload> KeptDownload::find(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return {};
  KeptDownload kept{.date = date_of(file.st_mtime), .version = {}};
  std::istringstream record(read_file(path_of_version(path)).value_or(""));
  std::string first, stamp;
  ObjectVersion version;
  for (std::string* line : {&first, &stamp, &version.etag, &version.last_modified})
    std::getline(record, *line);
  if (record && first == version_heading && stamp == stamp_of(file)) kept.version = version;
  return kept;
}

std::string keep_older(const std::string& path) {
  struct stat file {};
  expect(::stat(path.c_str(), &file) == 0, "cannot find ", path, ": ", std::strerror(errno));
  const std::filesystem::path place = path;
  const std::string older =
      (place.parent_path() / concat(place.stem().string(), "-", file.st_mtim.tv_sec, ".",
                                    file.st_mtim.tv_nsec, place.extension().string()))
          .string();
  std::error_code problem;
  std::filesystem::create_hard_link(path, older, problem);
  // Another start may have made this name. A file system without hard links can rename.
  if (problem && problem != std::errc::file_exists) std::filesystem::rename(path, older, problem);
  expect(!problem || problem == std::errc::file_exists, "cannot keep ", path, " as ", older, ": ",
         problem.message());
  return older;
}

void keep_download(const std::string& path, NewFile& file, const ObjectVersion& version) {
  struct stat written {};
  expect(::stat(file.path_now().c_str(), &written) == 0, "cannot find the download for ", path);
  file.publish();
  write_file(path_of_version(path), concat(version_heading, "\n", stamp_of(written), "\n", version.etag, "\n",
                                           version.last_modified, "\n"));
}

}  // namespace lockstep
