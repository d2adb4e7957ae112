// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// Whether the compiler was allowed to use the unit for products of bf16 (AMX-BF16 of Intel's Xeons since
// Sapphire Rapids), and what goes with it.
#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__linux__)
#define LOCKSTEP_BF16_UNIT 1
#endif

// Whether it was allowed to use instructions for vectors of words of two bf16 (AVX512-BF16), which change no
// bit.
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LOCKSTEP_BF16_WORDS 1
#endif

namespace lockstep {

/// Whether this process can use AMX: the compiler was allowed to, the processor has it, and the system grants
/// it. The first call asks the system.
bool has_bf16_unit();

/// Lets products of bf16 use AMX, or not, from now on: they have other bits by it. Call it before kernels
/// run. Expects has_bf16_unit().
void use_bf16_unit(bool use);
/// Whether they use it. A process begins without.
bool uses_bf16_unit();

/// The instructions for bf16 that products of it use, by their usual name; none where they are computed by
/// fp32.
std::string_view bf16_instructions();

}  // namespace lockstep
