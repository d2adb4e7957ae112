// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Bytes spelled as characters that show, as in GPT-2's vocabulary: those that show in Latin-1 are
/// themselves, the others U+0100 and the following, in order.
std::string spell_bytes(std::string_view bytes);

/// The bytes that are spelled so; none if a character stands for no byte.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace lockstep
