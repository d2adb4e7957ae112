// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// Properties of a GPU that matter to a run.
struct GpuProperties {
  std::string name;
  std::string uuid;  ///< equal on ranks that share a GPU
  int major = 0;     ///< compute capability
  int minor = 0;
  int64_t memory_bytes = 0;
};

/// Called with an error after which this process cannot use the GPU again, such as an illegal address. An
/// exception could wait for the GPU forever, where it frees memory. So programs end in this function.
inline void (*lost_gpu)(const Error&) = nullptr;

/// Returns how many GPUs this process sees. It is 0 without a driver and in a build without CUDA.
int count_gpus();

/// Returns why count_gpus() is 0 and what to do about it; empty if it is not 0.
std::string why_no_gpu();

/// Returns the properties of a GPU. Throws Error if there is no such GPU.
GpuProperties gpu_properties(int device);

/// Makes a queue on a GPU that lives as long as the process. A `high_priority` queue runs first if several
/// wait for the device. Throws UserError with the reason and the remedy if there is no such GPU.
Stream make_gpu_stream(int device, bool high_priority = false);

/// Returns a GPU's text in the fingerprint of a run: "NVIDIA H200, compute capability 9.0".
std::string describe_gpu(int device);

}  // namespace lockstep
