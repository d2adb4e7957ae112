// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "emulator/emulator.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/cuda/device/launch.cuh"

// Helpers that launch the toy kernels of the emulator's own tests.

namespace emulator {

/// Device memory for `count` values. It ends directly after the last value.
template <class T>
class Array {
 public:
  explicit Array(size_t count, T value = {}) : count_(count) {
    lockstep::cuda::check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "allocating");
    fill(value);
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* get() const { return data_; }
  void fill(T value) const { set(std::vector<T>(count_, value)); }
  void set(const std::vector<T>& values) const { std::memcpy(data_, values.data(), count_ * sizeof(T)); }
  std::vector<T> values() const { return std::vector<T>(data_, data_ + count_); }

 private:
  T* data_ = nullptr;
  size_t count_;
};

/// Launches a kernel on the default stream. It runs immediately.
template <class... Parameters, class... Arguments>
void launch(const lockstep::cuda::Grid& grid, void (*kernel)(Parameters...), Arguments&&... arguments) {
  lockstep::cuda::launch_grid(lockstep::CudaStream{}, grid, kernel, std::forward<Arguments>(arguments)...);
}

/// Returns the message of the error that the body throws, or an empty text.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const lockstep::Error& error) {
    return error.what();
  }
  return "";
}

/// Runs the body in the ordered schedule and in random schedules.
inline void in_each_schedule(const std::function<void()>& body, uint32_t schedules = 6) {
  for (uint32_t seed = 0; seed < schedules; ++seed) {
    set_schedule(seed);
    body();
  }
  set_schedule(0);
}

/// Succeeds if the text contains all parts, in any order.
inline testing::AssertionResult has(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
  return testing::AssertionSuccess();
}

}  // namespace emulator
