// SPDX-License-Identifier: Apache-2.0
#include "language/kept_download.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <sys/stat.h>
#include <system_error>

#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

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
