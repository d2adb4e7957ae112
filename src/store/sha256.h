// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "store/object_store.h"

namespace lockstep {

/// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);
std::string sha256(Pieces pieces);
/// 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

}  // namespace lockstep
