// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/core/dtype.h"

namespace lockstep {

/// Measures the peak of this thread's core in floating-point operations per second. The loop runs independent
/// fused multiply-adds in registers. Kernels are compared with this ceiling. Takes about 20 ms.
double measure_peak_flops();

/// Returns a GPU's dense peak from its data sheet, in floating-point operations per second; 0 if unknown.
double gpu_peak_flops(const std::string& gpu_name, DType dtype);

}  // namespace lockstep
