// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/memory.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cached_attention.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::predicted {
namespace {

bool has_nan(const std::byte* bytes, int64_t count, DType dtype) {
  const auto any_nan = [&]<class T>() {
    const auto* values = reinterpret_cast<const T*>(bytes);
    return std::any_of(values, values + count, [](T value) { return std::isnan(static_cast<float>(value)); });
  };
  return dtype != DType::i32 && with_float_type(dtype, any_nan);
}

}  // namespace

View Arrays::make(const Shape& shape, DType dtype, const std::function<double(uint32_t word)>& value) {
  const int64_t count = shape.elements();
  std::vector<std::byte> stored(static_cast<size_t>(count * bytes(dtype)));
  const auto draw = [&](int64_t i) { return value(philox(made_, {static_cast<uint32_t>(i), 0, 0, 0})[0]); };
  if (dtype == DType::i32)
    for (int64_t i = 0; i < count; ++i)
      reinterpret_cast<int32_t*>(stored.data())[i] = static_cast<int32_t>(draw(i));
  else
    with_float_type(dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i)
        if constexpr (sizeof(T) == 2)
          reinterpret_cast<T*>(stored.data())[i] = static_cast<T>(static_cast<float>(draw(i)));
        else
          reinterpret_cast<T*>(stored.data())[i] = static_cast<T>(draw(i));
    });
  ++made_;
  memory_.push_back(allocate((count + shift_) * bytes(dtype), stream_));
  const View view{memory_.back().get() + shift_ * bytes(dtype), shape, dtype};
  copy_bytes(view.data, stream_, stored.data(), cpu_stream(), count * bytes(dtype));
  return view;
}

View Arrays::input(const Shape& shape, DType dtype, double scale) {
  return make(shape, dtype, [scale](uint32_t word) {
    const double number = (static_cast<int>(word % 4096) - 2048) * 0x1p-11;
    return std::ldexp(number * scale, -static_cast<int>(word >> 12 & 7));
  });
}

View Arrays::positive(const Shape& shape, DType dtype, double scale) {
  return make(shape, dtype, [scale](uint32_t word) {
    return std::ldexp((word % 2048 + 2048) * 0x1p-12 * scale, -static_cast<int>(word >> 12 & 7));
  });
}

View Arrays::whole(const Shape& shape, DType dtype) {
  return make(shape, dtype, [](uint32_t word) { return static_cast<int>(word % 5) - 2; });
}

View Arrays::ids(const Shape& shape, int32_t below) {
  return make(shape, DType::i32, [below](uint32_t word) { return word % static_cast<uint32_t>(below); });
}

View Arrays::number(double value, DType dtype) {
  return make({1}, dtype, [value](uint32_t) { return value; });
}

View Arrays::integers(const std::vector<int32_t>& values) {
  size_t next = 0;
  return make({static_cast<int64_t>(values.size())}, DType::i32, [&](uint32_t) { return values[next++]; });
}

View Arrays::output(const Shape& shape, DType dtype) {
  return updated(make(shape, dtype, [](uint32_t) { return 0.0; }));
}

View Arrays::updated(const View& view) {
  results_.push_back(view);
  return view;
}

uint64_t Arrays::hash() const {
  Hasher hasher;
  for (const View& result : results_) {
    std::vector<std::byte> bytes(static_cast<size_t>(result.bytes()));
    copy_bytes(bytes.data(), cpu_stream(), result.data, stream_, result.bytes());
    expect(!has_nan(bytes.data(), result.size(), result.dtype), "a result ", result.shape, " has a NaN");
    hasher.add(bytes);
  }
  return hasher.value();
}

bool Case::takes_any_address() const {
  static const std::set<std::string> aligned = {CausalAttentionForward::name, CausalAttentionBackward::name,
                                                CachedAttention::name, MatMul::name};
  return !aligned.contains(kernel) || dtype == DType::f32;
}

std::string extents(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += concat(i == 0 ? "" : "x", shape[i]);
  return text;
}

Cases all_cases() {
  Cases all;
  for (const auto& part : {attention_cases, element_cases, product_cases, row_cases, sum_cases, update_cases})
    for (Case& one : part()) all.push_back(std::move(one));
  std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) {
    return std::tie(a.kernel, a.dtype, a.name) < std::tie(b.kernel, b.dtype, b.name);
  });
  const auto same = std::adjacent_find(all.begin(), all.end(), [](const Case& a, const Case& b) {
    return std::tie(a.kernel, a.dtype, a.name) == std::tie(b.kernel, b.dtype, b.name);
  });
  expect(same == all.end(), "two cases have one name");
  return all;
}

}  // namespace lockstep::predicted
