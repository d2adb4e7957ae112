// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Describes the damage in a text that is not JSON. A parser has given up after `byte` bytes.
std::string json_damage(std::string_view text, size_t byte);

}  // namespace lockstep
