// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// Whether the compiler may use AMX-BF16, the unit for products of bf16 of Intel's Xeons since Sapphire
// Rapids, and the instructions that go with it.
#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__linux__)
#define LOCKSTEP_BF16_UNIT 1
#endif

// Whether the compiler may use AVX512-BF16. It changes no bit.
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LOCKSTEP_BF16_WORDS 1
#endif

namespace lockstep {

/// Whether this process can use AMX: the compiler was allowed to, the processor has it, and the system grants
/// it. The first call asks the system.
bool has_bf16_unit();

/// Turns AMX on or off for products of bf16, which it gives other bits. Call it before kernels run. AMX needs
/// has_bf16_unit().
void use_bf16_unit(bool use);
/// Whether products of bf16 use AMX. It is off when a process starts.
bool uses_bf16_unit();

/// The instructions for bf16 that products of it use, by their usual name; none where they are computed by
/// fp32.
std::string_view bf16_instructions();

}  // namespace lockstep
