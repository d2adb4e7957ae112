// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "emulator/emulator.h"

// Records launches for the interpreter in tests/ptx, which executes nvcc's PTX of the same kernel on the same
// memory. LOCKSTEP_EMULATOR_RECORD names the folder. LOCKSTEP_EMULATOR_RECORD_LIMIT (4) is the number of
// launches of each kernel that are recorded. They differ in their shape or their arguments.

namespace emulator {

/// Returns true if launches are recorded.
bool is_recording();

/// Notes that the host wrote device memory. Other bytes that hold poison count as unwritten.
void note_host_write(const void* address, size_t bytes);

/// The memory before a launch. finish() writes a file with the memory before and after.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void finish() = 0;
};

/// Begins to record a launch. Returns null if it is not recorded.
std::unique_ptr<Recording> record(const Launch& launch);

}  // namespace emulator
