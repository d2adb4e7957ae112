// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/store/object_store.h"

namespace lockstep {

/// Returns the SHA-256 of some bytes in 64 hexadecimal digits.
std::string sha256(std::string_view bytes);
/// Returns the SHA-256 of the concatenated pieces in 64 hexadecimal digits.
std::string sha256(Pieces pieces);
/// Returns the HMAC-SHA256 of a text in 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

}  // namespace lockstep
