// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns a text in Unicode's Normalization Form C (UAX #15), as `tokenizers` computes it: combining marks
/// that are newer than Unicode 9 keep their places. Copies bytes that are not UTF-8.
std::string normalized(std::string_view text);

/// Returns the last position at or before `near` that cuts a text into two parts whose normalizations make
/// that of the text. It is 0 if there is none.
size_t normalization_cut(std::string_view text, size_t near);

/// Returns whether a character alone is its own normalization.
bool is_own_normalization(std::string_view character);

/// Characters that decompose: the distance from the previous one, the first part, and the last part if there
/// are two. Only those in `composing_characters` are composed again.
extern const std::array<uint32_t, 2820> composing_characters;
extern const std::array<uint32_t, 309> decomposing_characters;
extern const std::array<uint32_t, 2034> replaced_characters;
/// Runs of characters with a combining class: the distance from the end of the previous run, length, class.
extern const std::array<uint32_t, 1002> combining_characters;

}  // namespace lockstep
