// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/random.h"

namespace lockstep::testing {

constexpr DType float_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

/// Numbers of one dtype in their own memory. Kernels see them as a tensor and tests see them as doubles.
class Values {
 public:
  explicit Values(Shape shape, DType dtype = DType::f32)
      : shape_(shape), dtype_(dtype), bytes_(size_bytes()) {}

  /// Returns values uniform in [low, high). They are the same for every dtype up to rounding.
  static Values uniform(Shape shape, DType dtype, uint64_t seed, double low = -2.0, double high = 2.0) {
    Values values(shape, dtype);
    for (int64_t i = 0; i < values.size(); ++i)
      values.set(i, low + (high - low) * uniform_float(philox(seed, {static_cast<uint32_t>(i), 0, 0, 0})[0]));
    return values;
  }

  /// Returns multiples of 1/8 in [-2, 2]. Sums of a few thousand products of two are exact in fp32 in any
  /// order.
  static Values eighths(Shape shape, DType dtype, uint64_t seed) {
    Values values = uniform(shape, dtype, seed);
    for (int64_t i = 0; i < values.size(); ++i) values.set(i, std::round(8 * values[i]) / 8);
    return values;
  }

  static Values of(const std::vector<int32_t>& numbers) {
    Values values({static_cast<int64_t>(numbers.size())}, DType::i32);
    for (int64_t i = 0; i < values.size(); ++i) values.set(i, numbers[static_cast<size_t>(i)]);
    return values;
  }

  /// Returns the same numbers in another float type, rounded to nearest.
  Values in(DType dtype) const {
    Values values(shape_, dtype);
    for (int64_t i = 0; i < size(); ++i) values.set(i, (*this)[i]);
    return values;
  }

  View view() { return {bytes_.data(), shape_, dtype_}; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return shape_.elements(); }

  double operator[](int64_t i) const {
    if (dtype_ == DType::i32) return at<int32_t>(i);
    return with_float_type(dtype_, [&]<class T>() {
      if constexpr (std::is_same_v<T, double>) return at<T>(i);
      return static_cast<double>(static_cast<float>(at<T>(i)));
    });
  }

  void set(int64_t i, double value) {
    if (dtype_ == DType::i32) return put(i, static_cast<int32_t>(value));
    with_float_type(dtype_, [&]<class T>() { put(i, static_cast<T>(value)); });
  }

  bool operator==(const Values& other) const { return bytes_ == other.bytes_; }

 private:
  size_t size_bytes() const { return static_cast<size_t>(shape_.elements() * bytes(dtype_)); }

  template <class T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  void put(int64_t i, T value) {
    std::memcpy(bytes_.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }

  Shape shape_;
  DType dtype_;
  std::vector<unsigned char> bytes_;
};

/// Returns elements [begin, begin + size) of a view.
inline View part_of(const View& whole, int64_t begin, int64_t size) {
  return {static_cast<std::byte*>(whole.data) + begin * bytes(whole.dtype), {size}, whole.dtype};
}

/// Runs the kernel on the CPU with `threads` threads.
template <class K>
void launch_on(int threads, const K& kernel) {
  detail::ThreadPool pool(threads);
  // Waits until all threads are awake. Otherwise one thread could finish a small kernel before the others
  // start.
  std::atomic<int> awake{0};
  pool.run(threads, [&](int64_t) {
    ++awake;
    while (awake < threads) std::this_thread::yield();
  });
  launch(CpuStream{&pool}, kernel);
}

/// Returns the distance from 1 to the next number.
inline double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-10;
    default:
      return 0x1p-23;
  }
}

/// Returns the sum of y[i] * weights[i], a scalar whose gradient with respect to y is `weights`.
inline double dot(const Values& y, const Values& weights) {
  double sum = 0.0;
  for (int64_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
  return sum;
}

}  // namespace lockstep::testing
