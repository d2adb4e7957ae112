// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel_cases.h"

namespace lockstep {

/// Options for timing kernels on a GPU.
struct GpuTiming {
  double seconds = 0.1;          ///< length of each measurement
  double sample_seconds = 5e-3;  ///< length of one sample; reading the host's clock costs some microseconds
  int64_t rotated_bytes = 180 << 20;        ///< operands that calls rotate through; more than a cache holds
  int64_t copied_bytes = int64_t{2} << 30;  ///< bytes that the ceiling's copy reads and writes
  int64_t product_extent = 8192;            ///< rows and columns of the ceiling's square matmul
};

/// Measures rows of a GpuReport on the current stream. The kernel, its ceiling and the untuned matmul
/// alternate sample by sample.
class GpuRows {
 public:
  GpuRows(DType dtype, const GpuTiming& timing);
  ~GpuRows();
  GpuRows(const GpuRows&) = delete;
  GpuRows& operator=(const GpuRows&) = delete;

  /// Measures a case and returns the cells after `benchmark`.
  std::vector<std::string> measure_case(const KernelCase& one) const;

 private:
  struct Ceilings;
  DType dtype_;
  GpuTiming timing_;
  std::unique_ptr<Ceilings> ceilings_;
};

}  // namespace lockstep
