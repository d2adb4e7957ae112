// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace emulator {

/// Saves the registers of the running fiber on its stack, stores its stack pointer, and goes on with another.
extern "C" void emulator_switch(void** from, void* to);

/// The stacks of one host thread's fibers, each with a page below it that cannot be touched.
class Stacks {
 public:
  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// The stack pointer of a fiber that will begin with `entry`, which must not return.
  void* prepare(int fiber, void (*entry)()) const;

  bool contains(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - memory_) < size_;
  }

 private:
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace emulator
