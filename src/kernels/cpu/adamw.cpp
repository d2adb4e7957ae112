// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/adamw.h"

#include <cmath>

#include "lockstep/kernels/cpu/map.h"

namespace lockstep {
namespace {

/// The factors of one step, computed in double and rounded once.
template <class T>
struct Factors {
  T gradient_scale, decay, one_minus_beta1, beta2, one_minus_beta2, root_of_correction2, epsilon, step_size;

  Factors(const AdamWStep& k, const std::array<double, 3>& schedule, float scale, const AdamWSlice& slice)
      : gradient_scale(static_cast<T>(scale)),
        decay(static_cast<T>(1.0 - schedule[0] * slice.learning_rate_factor * slice.weight_decay)),
        one_minus_beta1(static_cast<T>(1.0 - k.beta1)),
        beta2(static_cast<T>(k.beta2)),
        one_minus_beta2(static_cast<T>(1.0 - k.beta2)),
        root_of_correction2(static_cast<T>(schedule[2])),
        epsilon(static_cast<T>(k.epsilon)),
        step_size(static_cast<T>(schedule[1] * slice.learning_rate_factor)) {}
};

/// Number of elements that several loops pass over: they stay in the first-level cache.
constexpr int64_t piece = 512;

template <class T>
void write_copy(const View& copy, const T* parameter, int64_t start, int64_t stop) {
  with_float_type(copy.dtype, [&]<class C>() {
    map_range<Compute<C>>(
        start, stop, copy.as<C>(), [](Compute<C> value) { return value; }, parameter);
  });
}

template <class T>
void update(const AdamWSlice& slice, const Factors<T>& f, int64_t begin, int64_t end) {
  const T* gradient = slice.gradient.as<T>();
  T* first = slice.first_moment.as<T>();
  T* second = slice.second_moment.as<T>();
  for (int64_t start = begin; start < end; start += piece) {
    const int64_t stop = std::min(end, start + piece);
    map_range<T>(
        start, stop, first,
        [=](T m, T g) { return std::fma(f.one_minus_beta1, g * f.gradient_scale - m, m); }, first, gradient);
    const auto square = [=](T v, T g) {
      const T scaled = g * f.gradient_scale;
      return std::fma(f.one_minus_beta2 * scaled, scaled, f.beta2 * v);
    };
    map_range<T>(start, stop, second, square, second, gradient);
    const auto step = [=](T p, T m, T v) {
      return std::fma(-f.step_size, m / (std::sqrt(v) / f.root_of_correction2 + f.epsilon), p * f.decay);
    };
    T* parameter = slice.parameter.as<T>();
    map_range<T>(start, stop, parameter, step, parameter, first, second);
    if (slice.compute_copy) write_copy(slice.compute_copy, parameter, start, stop);
  }
}

}  // namespace

std::array<double, 3> adamw_schedule(double learning_rate, double beta1, double beta2, int64_t step) {
  return {learning_rate, learning_rate / (1.0 - math::power(beta1, step)),
          std::sqrt(1.0 - math::power(beta2, step))};
}

void run(CpuStream, const AdamWSchedule& k) {
  auto* schedule = k.schedule.as<double>();
  const int64_t step = *k.step.as<int32_t>();
  const std::array<double, 3> values = adamw_schedule(schedule[0], k.beta1, k.beta2, step);
  std::copy(values.begin(), values.end(), schedule);
}

void run(CpuStream stream, const AdamWStep& k) {
  const float scale = k.clip ? k.gradient_scale * *k.clip.as<float>() : k.gradient_scale;
  if (!std::isfinite(scale)) return;
  std::array<double, 3> schedule = adamw_schedule(k.learning_rate, k.beta1, k.beta2, k.step);
  if (k.schedule) std::copy_n(k.schedule.as<double>(), schedule.size(), schedule.begin());
  int64_t total = 0;
  for (const AdamWSlice& slice : k.slices) total += slice.parameter.size();
  // Chunks are cut from the slices laid end to end, so that many small parameters share a chunk.
  stream.for_each_chunk(total, elementwise_grain, [&](int64_t begin, int64_t end) {
    int64_t offset = 0;
    for (const AdamWSlice& slice : k.slices) {
      const int64_t size = slice.parameter.size();
      const int64_t first = std::max(begin - offset, int64_t{0});
      const int64_t last = std::min(end - offset, size);
      offset += size;
      if (first >= last) continue;
      if (slice.parameter.dtype == DType::f64)
        update(slice, Factors<double>(k, schedule, scale, slice), first, last);
      else
        update(slice, Factors<float>(k, schedule, scale, slice), first, last);
    }
  });
}

}  // namespace lockstep
