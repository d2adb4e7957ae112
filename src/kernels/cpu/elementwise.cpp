// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/elementwise.h"

#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/math.h"

namespace lockstep {

void run(CpuStream stream, const Scale& k) {
  map_views(
      stream, k.y, [factor = k.factor](auto x) { return static_cast<decltype(x)>(factor) * x; }, k.x);
}

void run(CpuStream stream, const ScaleBy& k) {
  const auto scale = [&]<class C>(C factor) {
    map_views(
        stream, k.y, [factor](auto x) { return static_cast<decltype(x)>(factor) * x; }, k.x);
  };
  k.factor.dtype == DType::f64 ? scale(*k.factor.as<double>()) : scale(*k.factor.as<float>());
}

void run(CpuStream, const SetValues& k) { std::copy_n(k.values.begin(), k.count, k.y.as<double>()); }

void run(CpuStream, const SetStep& k) { *k.y.as<int32_t>() = static_cast<int32_t>(k.value); }

void run(CpuStream stream, const ReluForward& k) {
  map_views(
      stream, k.y, [](auto x) { return x < 0 ? decltype(x)(0) : x; }, k.x);
}

void run(CpuStream stream, const ReluBackward& k) {
  map_views(
      stream, k.dx, [](auto x, auto dy) { return x > 0 ? dy : decltype(x)(0); }, k.x, k.dy);
}

void run(CpuStream stream, const TanhForward& k) {
  map_views(
      stream, k.y, [](auto x) { return math::tanh(x); }, k.x);
}

void run(CpuStream stream, const TanhBackward& k) {
  map_views(
      stream, k.dx, [](auto y, auto dy) { return dy * (1 - y * y); }, k.y, k.dy);
}

void run(CpuStream stream, const Exp& k) {
  map_views(
      stream, k.y, [](auto x) { return math::exp(x); }, k.x);
}

void run(CpuStream stream, const Log& k) {
  map_views(
      stream, k.y, [](auto x) { return math::log(x); }, k.x);
}

void run(CpuStream stream, const Sqrt& k) {
  map_views(
      stream, k.y, [](auto x) { return std::sqrt(x); }, k.x);
}

void run(CpuStream stream, const Rsqrt& k) {
  map_views(
      stream, k.y, [](auto x) { return 1 / std::sqrt(x); }, k.x);
}

void run(CpuStream stream, const Fill& k) {
  const auto fill = [&]<class T>(T value) {
    stream.for_each_chunk(k.y.size(), elementwise_grain, [&, y = k.y.as<T>()](int64_t begin, int64_t end) {
      std::fill(y + begin, y + end, value);
    });
  };
  if (k.y.dtype == DType::i32) return fill(static_cast<int32_t>(k.value));
  with_float_type(k.y.dtype, [&]<class T>() { fill(static_cast<T>(static_cast<Compute<T>>(k.value))); });
}

void run(CpuStream stream, const Copy& k) {
  const auto* x = static_cast<const std::byte*>(k.x.data);
  auto* y = static_cast<std::byte*>(k.y.data);
  stream.for_each_chunk(k.x.bytes(), elementwise_grain * 4, [=](int64_t begin, int64_t end) {
    std::memcpy(y + begin, x + begin, static_cast<size_t>(end - begin));
  });
}

void run(CpuStream stream, const AddPositions& k) {
  const int64_t sample = k.x.shape[1] * k.x.shape[2];
  if (sample == 0) return;
  with_float_type(k.x.dtype, [&]<class T>() {
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / sample);
    stream.for_each_chunk(k.x.shape[0], grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        map_range<Compute<T>>(
            0, sample, k.y.as<T>() + b * sample, [](auto x, auto position) { return x + position; },
            k.x.as<T>() + b * sample, k.table.as<T>());
    });
  });
}

void run(CpuStream stream, const AddPositionsBackward& k) {
  with_float_type(k.dy.dtype, [&]<class S>() {
    using T = Compute<S>;
    const int64_t sample = k.dy.shape[1] * k.dy.shape[2];
    const S* dy = k.dy.as<S>();
    T* dtable = k.dtable.as<T>();
    const int64_t grain = std::max<int64_t>(64, elementwise_grain / std::max<int64_t>(1, k.dy.shape[0]));
    stream.for_each_chunk(k.dtable.size(), grain, [&](int64_t begin, int64_t end) {
      std::fill(dtable + begin, dtable + end, T(0));
      for (int64_t b = 0; b < k.dy.shape[0]; ++b)
        map_range<T>(
            begin, std::min(end, sample), dtable, [](T sum, T term) { return sum + term; }, dtable,
            dy + b * sample);
    });
  });
}

}  // namespace lockstep
