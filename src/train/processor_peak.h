// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "core/dtype.h"

namespace lockstep {

/// Floating-point operations per second that this thread's core reaches in a loop of independent fused
/// multiply-adds held in registers: the ceiling that kernels are measured against. Takes about 20 ms.
double measure_peak_flops();

/// The dense peak of a GPU for this dtype as its maker states it, in floating-point operations per second; 0
/// if unknown.
double gpu_peak_flops(const std::string& gpu_name, DType dtype);

/// The model of this machine's processor as /proc/cpuinfo names it; the instruction set where it does not.
std::string processor_name();

/// The ceiling of all ranks together; 0 where it is not known.
double peak_flops(const Config& config, const World& world);

}  // namespace lockstep
