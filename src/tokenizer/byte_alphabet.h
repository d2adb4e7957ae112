// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Spells bytes as printable characters, as in GPT-2's vocabulary. A byte that is printable in Latin-1 stays
/// that character. The other bytes become U+0100 and the following in order.
std::string spell_bytes(std::string_view bytes);

/// Returns the bytes of a spelling by spell_bytes(), or nothing if a character spells no byte.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace lockstep
