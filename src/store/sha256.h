// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "store/object_store.h"

namespace lockstep {

/// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);
std::string sha256(Pieces pieces);

}  // namespace lockstep
