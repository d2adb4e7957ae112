// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/file.h"
#include "language/download.h"

namespace lockstep {

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
