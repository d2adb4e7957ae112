// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns what is wrong in a text that is no JSON, where a parser has given up after reading `byte` bytes.
std::string json_damage(std::string_view text, size_t byte);

}  // namespace lockstep
