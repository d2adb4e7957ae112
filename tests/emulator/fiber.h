// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace emulator {

/// Saves the registers of the running fiber on its stack and stores its stack pointer in *from. Then resumes
/// the fiber with the stack pointer `to`.
extern "C" void emulator_switch(void** from, void* to);

/// The stacks of one host thread's fibers. Below each stack is a page without access rights.
class Stacks {
 public:
  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// Returns the stack pointer of a new fiber that begins with `entry`. `entry` must not return.
  void* prepare(int fiber, void (*entry)()) const;

  bool contains(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - memory_) < size_;
  }

 private:
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace emulator
