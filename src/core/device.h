// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// Where memory lives and kernels run.
enum class Device { cpu, cuda };

inline const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

}  // namespace lockstep
