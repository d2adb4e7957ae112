// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "lockstep/core/file.h"

namespace lockstep {

/// The version of an object in the words of its server. Both are empty if the server names none.
struct ObjectVersion {
  std::string etag, last_modified;

  bool is_known() const { return !etag.empty() || !last_modified.empty(); }
  bool operator==(const ObjectVersion&) const = default;
};

/// Writes the contents of an http(s), file or s3 URL to a new file, which the caller publishes. Returns their
/// version, or nothing if the server still has the version `kept`. Gives up within seconds without an answer.
/// Throws UserError with the cause. It is also an error if `expected_sha256` is not empty and differs from
/// that of the contents.
std::optional<ObjectVersion> download(const std::string& url, NewFile& file,
                                      const std::string& expected_sha256 = "",
                                      const ObjectVersion& kept = {});

/// Returns the SHA-256 of a file, which is read as a whole.
std::string sha256_of_file(const std::string& path);

/// A download of an earlier run in the cache folder.
struct KeptDownload {
  std::string date;                      ///< "2026-11-25 10:11 UTC"
  std::optional<ObjectVersion> version;  ///< nothing if the file is not the one whose version was recorded

  /// Finds the file at `path`. A file PATH.version next to it has its version.
  static std::optional<KeptDownload> find(const std::string& path);
};

/// Gives the file at `path` a second name, which has the time of its last change. Returns that name. The file
/// stays there when a download replaces the first name.
std::string keep_older(const std::string& path);

/// Puts a download at `path` and records its version. A crash in between leaves a file without a version.
void keep_download(const std::string& path, NewFile& file, const ObjectVersion& version);

}  // namespace lockstep
