// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "kernels/kernel.h"

namespace lockstep::bits {

constexpr DType float_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

/// A tensor in memory of its own.
class Numbers {
 public:
  Numbers(const Shape& shape, DType dtype)
      : view_{nullptr, shape, dtype}, bytes_(static_cast<size_t>(view_.bytes())) {
    view_.data = bytes_.data();
  }
  Numbers(Numbers&&) = default;

  /// Uniform in [-2, 2), with a zero of either sign now and then.
  static Numbers uniform(const Shape& shape, DType dtype, uint64_t seed) {
    return drawn(shape, dtype, seed, [](uint32_t word, uint32_t) { return 4.0 * uniform_float(word) - 2.0; });
  }
  /// Of either sign, with exponents between the given ones: products and sums of the smallest are subnormal.
  static Numbers spread(const Shape& shape, DType dtype, uint64_t seed, int least = -90, int greatest = 3) {
    return drawn(shape, dtype, seed, [=](uint32_t word, uint32_t other) {
      const int exponent = least + static_cast<int>(other % static_cast<uint32_t>(greatest - least));
      return std::ldexp((word & 1 ? 1.0 : -1.0) * (1.0 + static_cast<double>(uniform_float(word))), exponent);
    });
  }
  /// Like spread(), all positive.
  static Numbers positive(const Shape& shape, DType dtype, uint64_t seed, int least = -90, int greatest = 3) {
    return drawn(shape, dtype, seed, [=](uint32_t word, uint32_t other) {
      const int exponent = least + static_cast<int>(other % static_cast<uint32_t>(greatest - least));
      return std::ldexp(1.0 + static_cast<double>(uniform_float(word)), exponent);
    });
  }
  /// i32 in [first, end).
  static Numbers integers(const Shape& shape, uint64_t seed, int32_t first, int32_t end) {
    Numbers numbers(shape, DType::i32);
    for (int64_t i = 0; i < shape.elements(); ++i)
      numbers.view_.as<int32_t>()[i] =
          first + static_cast<int32_t>(words(seed, i)[0] % static_cast<uint32_t>(end - first));
    return numbers;
  }
  static Numbers of(double value, DType dtype) {
    return drawn(
        {1}, dtype, 0, [=](uint32_t, uint32_t) { return value; }, false);
  }

  const View& view() const { return view_; }
  View view_as(const Shape& shape) const { return {view_.data, shape, view_.dtype}; }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 private:
  static std::array<uint32_t, 4> words(uint64_t seed, int64_t i) {
    return philox(seed, {static_cast<uint32_t>(i), 0, 0, 0});
  }

  template <class Draw>
  static Numbers drawn(const Shape& shape, DType dtype, uint64_t seed, Draw draw, bool with_zeros = true) {
    Numbers numbers(shape, dtype);
    with_float_type(dtype, [&]<class T>() {
      for (int64_t i = 0; i < shape.elements(); ++i) {
        const auto word = words(seed, i);
        const bool is_zero = with_zeros && word[2] % 64 == 0;
        const double value = is_zero ? std::copysign(0.0, draw(word[0], word[1])) : draw(word[0], word[1]);
        if constexpr (sizeof(T) == 2)
          numbers.view_.as<T>()[i] = static_cast<T>(static_cast<float>(value));
        else
          numbers.view_.as<T>()[i] = static_cast<T>(value);
      }
    });
    return numbers;
  }

  View view_;
  std::vector<unsigned char> bytes_;
};

/// Runs the kernel on the CPU with three threads.
template <class K>
void launch_here(const K& kernel) {
  static ThreadPool pool(3);
  launch(CpuStream{&pool}, kernel);
}

/// Prints "<label> <hash of the bytes of the outputs>" (FNV-1a, 64 bits).
template <class... Outputs>
void print_line(const std::string& label, const Outputs&... outputs) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](const Numbers& numbers) {
    for (const unsigned char byte : numbers.bytes()) hash = (hash ^ byte) * 0x100000001b3u;
  };
  (add(outputs), ...);
  std::printf("%s %016llx\n", label.c_str(), static_cast<unsigned long long>(hash));
}

void print_products();
void print_attention();
void print_rows();
void print_elements();

}  // namespace lockstep::bits
