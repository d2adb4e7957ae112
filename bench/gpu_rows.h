// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel_cases.h"

namespace lockstep {

/// How kernels are timed on a GPU.
struct GpuTiming {
  double seconds = 0.1;               ///< of each measurement
  double sample_seconds = 5e-3;       ///< of one sample: the clock is the host's, and costs some microseconds
  int64_t rotated_bytes = 180 << 20;  ///< operands that calls take turns with: more than a cache holds
  int64_t copied_bytes = int64_t{2} << 30;  ///< read and written by the copy that is the ceiling
  int64_t product_extent = 8192;            ///< of the square product that is the other ceiling
};

/// Rows of the table of a GPU (gpu_report()), measured on the current stream. Kernel, ceiling and the same
/// product without tuning alternate, sample by sample.
class GpuRows {
 public:
  GpuRows(DType dtype, const GpuTiming& timing);
  ~GpuRows();
  GpuRows(const GpuRows&) = delete;
  GpuRows& operator=(const GpuRows&) = delete;

  /// The cells after `benchmark`.
  std::vector<std::string> measure_case(const KernelCase& one) const;

 private:
  struct Ceilings;
  DType dtype_;
  GpuTiming timing_;
  std::unique_ptr<Ceilings> ceilings_;
};

}  // namespace lockstep
