// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/file.h"

namespace lockstep {

/// Writes the contents of an http(s), file or s3 URL to a new file, which the caller publishes. Gives up
/// within seconds without an answer. Throws UserError with the cause. It is also an error if
/// `expected_sha256` is not empty and differs from that of the contents.
void download(const std::string& url, NewFile& file, const std::string& expected_sha256 = "");

/// Returns the SHA-256 of a file, which is read as a whole.
std::string sha256_of_file(const std::string& path);

}  // namespace lockstep
