// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// Set if the compiler may use AMX-BF16 and its companion instructions. AMX-BF16 is the bf16 matmul unit of
// Intel's Xeons since Sapphire Rapids.
#if defined(__AMX_BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__linux__)
#define LOCKSTEP_BF16_UNIT 1
#endif

// Set if the compiler may use AVX512-BF16. Results do not depend on it.
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LOCKSTEP_BF16_WORDS 1
#endif

namespace lockstep {

/// Returns whether this process can use AMX: the compiler was allowed to, the processor has it, and the
/// system grants it. The first call asks the system.
bool has_bf16_unit();

/// Turns AMX on or off for bf16 matmuls, whose bits it changes. Call it before kernels run. AMX needs
/// has_bf16_unit().
void use_bf16_unit(bool use);
/// Returns whether bf16 matmuls use AMX. It is off when a process starts.
bool uses_bf16_unit();

/// Returns the usual name of the instructions for bf16 matmuls; empty if they are computed in fp32.
std::string_view bf16_instructions();

/// Returns the model of this machine's processor from /proc/cpuinfo, or its instruction set if it is not
/// there.
std::string processor_name();

}  // namespace lockstep
