// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include "kernels/values.h"

namespace lockstep::bits {

using testing::float_types;
using testing::Values;

/// Returns value(words) for every element. One in 64 is a zero with the value's sign.
template <class Value>
Values drawn(const Shape& shape, DType dtype, uint64_t seed, const Value& value) {
  Values values(shape, dtype);
  for (int64_t i = 0; i < values.size(); ++i) {
    const auto words = philox(seed, {static_cast<uint32_t>(i), 0, 0, 0});
    values.set(i, words[2] % 64 == 0 ? std::copysign(0.0, value(words)) : value(words));
  }
  return values;
}

/// Returns values in [-2, 2).
inline Values uniform(const Shape& shape, DType dtype, uint64_t seed) {
  return drawn(shape, dtype, seed, [](const auto& words) { return 4.0 * uniform_float(words[0]) - 2.0; });
}

/// Returns positive values with exponents in [least, end). Products and sums of the smallest are subnormal.
inline Values positive(const Shape& shape, DType dtype, uint64_t seed, int least = -90, int end = 3) {
  return drawn(shape, dtype, seed, [=](const auto& words) {
    const int exponent = least + static_cast<int>(words[1] % static_cast<uint32_t>(end - least));
    return std::ldexp(1.0 + static_cast<double>(uniform_float(words[0])), exponent);
  });
}

/// Returns values of positive() with random signs.
inline Values spread(const Shape& shape, DType dtype, uint64_t seed, int least = -90, int end = 3) {
  Values values = positive(shape, dtype, seed, least, end);
  for (int64_t i = 0; i < values.size(); ++i)
    if (philox(seed, {static_cast<uint32_t>(i), 1, 0, 0})[0] % 2 == 0) values.set(i, -values[i]);
  return values;
}

/// Returns i32 values in [first, end).
inline Values integers(const Shape& shape, uint64_t seed, int64_t first, int64_t end) {
  Values values(shape, DType::i32);
  for (int64_t i = 0; i < values.size(); ++i) {
    const int64_t word = philox(seed, {static_cast<uint32_t>(i), 0, 0, 0})[0];
    values.set(i, static_cast<double>(first + word % (end - first)));
  }
  return values;
}

/// Runs the kernel on the CPU with three threads.
template <class K>
void launch_here(const K& kernel) {
  testing::launch_on(3, kernel);
}

/// Prints "<label> <hash of the bytes of the outputs>" (FNV-1a, 64 bits).
template <class... Outputs>
void print_line(const std::string& label, Outputs&... outputs) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](Values& values) {
    const View view = values.view();
    for (int64_t i = 0; i < view.bytes(); ++i)
      hash = (hash ^ static_cast<uint8_t>(static_cast<const unsigned char*>(view.data)[i])) * 0x100000001b3u;
  };
  (add(outputs), ...);
  std::printf("%s %016llx\n", label.c_str(), static_cast<unsigned long long>(hash));
}

void print_products();
void print_attention();
void print_rows();
void print_elements();

}  // namespace lockstep::bits
