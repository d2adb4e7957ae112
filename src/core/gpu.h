// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "core/stream.h"

namespace lockstep {

/// What a GPU is, as far as it matters to a run.
struct GpuProperties {
  std::string name;
  std::string uuid;  ///< tells two ranks that they share a GPU
  int major = 0;     ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

/// How many GPUs this process sees; 0 without a driver, and in a build without CUDA.
int count_gpus();

/// Why count_gpus() is 0, and what to do about it; empty if it is not.
std::string why_no_gpu();

/// Throws Error if there is no such GPU.
GpuProperties gpu_properties(int device);

/// A new queue on a GPU; it lives as long as the process. Work of a `high_priority` queue goes first where
/// both wait for the device. Throws UserError saying why and what to do if there is no such GPU.
Stream make_gpu_stream(int device, bool high_priority = false);

/// What the fingerprint of a run holds: "NVIDIA H200, compute capability 9.0".
std::string describe_gpu(int device);

}  // namespace lockstep
