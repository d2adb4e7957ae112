// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// Whether products of bf16 may use the processor's unit for them (Intel's AMX-BF16): the compiler was
/// allowed to, the system grants it to this process, and LOCKSTEP_BF16_UNIT=off is not in the environment.
/// The same for the whole life of a process.
bool has_bf16_unit();

}  // namespace lockstep
