// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// Whether the compiler was allowed to use the unit for products of bf16 (Intel's AMX-BF16), and what goes
// with it.
#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__linux__)
#define LOCKSTEP_BF16_UNIT 1
#endif

// The same for the instructions of vectors of words of two bf16 (AVX512-BF16), which change no bit.
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LOCKSTEP_BF16_WORDS 1
#endif

namespace lockstep {

/// Whether products of bf16 use the processor's unit for them: the compiler was allowed to, the processor has
/// it, the system grants it to this process, and LOCKSTEP_BF16_UNIT=off is not in the environment. The same
/// for the whole life of a process.
bool has_bf16_unit();

/// The instructions for bf16 that products of it use, by their usual name; none where they are computed by
/// fp32.
std::string_view bf16_instructions();

}  // namespace lockstep
