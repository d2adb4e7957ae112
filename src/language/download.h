// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/file.h"

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

}  // namespace lockstep
