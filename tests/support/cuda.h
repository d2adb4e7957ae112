// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "lockstep/core/gpu.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/view.h"

#if defined(LOCKSTEP_EMULATED)
namespace emulator {
void set_schedule(uint32_t seed);
}
#endif

// Skips a test if there is neither a GPU nor the emulator. Prints the reason.
#define LOCKSTEP_NEEDS_GPU() \
  if (lockstep::count_gpus() == 0) GTEST_SKIP() << lockstep::why_no_gpu()

namespace lockstep {

/// Returns the stream of the first GPU.
inline const Stream& gpu_stream() {
  static const Stream stream = make_gpu_stream(0);
  return stream;
}

/// Runs body once per thread schedule. The emulator runs it in order and in two random schedules. A GPU runs
/// it three times, scheduled by the hardware. The caller compares the bits.
inline void for_each_schedule(const std::function<void()>& body) {
#if defined(LOCKSTEP_EMULATED)
  for (const uint32_t seed : {0u, 1u, 2u}) {
    emulator::set_schedule(seed);
    body();
  }
  emulator::set_schedule(0);
#else
  for (int run = 0; run < 3; ++run) body();
#endif
}

/// An array in GPU memory for a test.
class DeviceArray {
 public:
  /// Fills the array with bytes of 0xff, a NaN in each floating-point type.
  DeviceArray(const Shape& shape, DType dtype)
      : shape_(shape), dtype_(dtype), memory_(allocate(shape.elements() * bytes(dtype), gpu_stream())) {
    const std::vector<uint8_t> poison(static_cast<size_t>(size_bytes()), 0xff);
    copy_bytes(memory_.get(), gpu_stream(), poison.data(), cpu_stream(), size_bytes());
  }
  /// Stores these values, rounded to the dtype.
  DeviceArray(const std::vector<double>& values, const Shape& shape, DType dtype)
      : DeviceArray(shape, dtype) {
    std::vector<uint8_t> stored(static_cast<size_t>(size_bytes()));
    const auto write = [&]<class T>(auto round) {
      for (size_t i = 0; i < values.size(); ++i) reinterpret_cast<T*>(stored.data())[i] = round(values[i]);
    };
    expect(static_cast<int64_t>(values.size()) == shape.elements(), values.size(), " values for ", shape);
    if (dtype == DType::i32)
      write.template operator()<int32_t>([](double value) { return static_cast<int32_t>(value); });
    else
      with_float_type(dtype, [&]<class T>() {
        write.template operator()<T>([](double value) { return static_cast<T>(static_cast<float>(value)); });
      });
    copy_bytes(memory_.get(), gpu_stream(), stored.data(), cpu_stream(), size_bytes());
  }

  View view() const { return {memory_.get(), shape_, dtype_}; }

  /// Returns the exact stored values.
  std::vector<double> values() const {
    const std::vector<uint8_t> stored = bits();
    std::vector<double> result;
    const auto read = [&]<class T>(auto widen) {
      for (int64_t i = 0; i < shape_.elements(); ++i)
        result.push_back(widen(reinterpret_cast<const T*>(stored.data())[i]));
    };
    if (dtype_ == DType::i32)
      read.template operator()<int32_t>([](int32_t value) { return static_cast<double>(value); });
    else if (dtype_ == DType::f64)
      read.template operator()<double>([](double value) { return value; });
    else
      with_float_type(dtype_, [&]<class T>() {
        read.template operator()<T>([](T value) { return static_cast<double>(static_cast<float>(value)); });
      });
    return result;
  }
  /// Returns the raw bytes, to compare bits.
  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> stored(static_cast<size_t>(size_bytes()));
    copy_bytes(stored.data(), cpu_stream(), memory_.get(), gpu_stream(), size_bytes());
    return stored;
  }

 private:
  int64_t size_bytes() const { return shape_.elements() * bytes(dtype_); }

  Shape shape_;
  DType dtype_;
  std::shared_ptr<std::byte> memory_;
};

/// Returns normal values for a test, rounded to `dtype`, so that a reference starts from the same numbers.
inline std::vector<double> normal_values(int64_t count, uint32_t seed, DType dtype = DType::f32,
                                         double scale = 1.0) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, scale);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) {
    value = normal(generator);
    with_float_type(dtype, [&]<class T>() {
      value = static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(value))));
    });
  }
  return values;
}

/// Returns sqrt(sum (a - b)^2 / sum b^2). It is infinite if a holds a NaN.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  const bool is_comparable = a.size() == b.size() && std::isfinite(difference);
  return is_comparable ? std::sqrt(difference / std::max(norm, 1e-300))
                       : std::numeric_limits<double>::infinity();
}

}  // namespace lockstep
