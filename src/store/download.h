// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Returns the contents of an http(s), file or s3 URL. Gives up within seconds if nothing answers. Throws
/// UserError with the cause. Also throws it if `expected_sha256` is not empty and differs from that
/// of the contents.
std::string download(const std::string& url, const std::string& expected_sha256 = "");

}  // namespace lockstep
