// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/map.h"

namespace lockstep {
namespace {

/// The factors of one step, computed in double and rounded once.
template <class T>
struct Factors {
  T gradient_scale, decay, one_minus_beta1, beta2, one_minus_beta2, root_of_correction2, epsilon, step_size;

  Factors(const AdamWStep& k, double weight_decay)
      : gradient_scale(static_cast<T>(k.gradient_scale)),
        decay(static_cast<T>(1.0 - k.learning_rate * weight_decay)),
        one_minus_beta1(static_cast<T>(1.0 - k.beta1)),
        beta2(static_cast<T>(k.beta2)),
        one_minus_beta2(static_cast<T>(1.0 - k.beta2)),
        root_of_correction2(static_cast<T>(std::sqrt(1.0 - std::pow(k.beta2, static_cast<double>(k.step))))),
        epsilon(static_cast<T>(k.epsilon)),
        step_size(static_cast<T>(k.learning_rate / (1.0 - std::pow(k.beta1, static_cast<double>(k.step))))) {}
};

template <class T>
void update(const AdamWSegment& segment, const Factors<T>& f, int64_t begin, int64_t end) {
  T* parameter = static_cast<T*>(segment.parameter.data);
  const T* gradient = static_cast<const T*>(segment.gradient.data);
  T* first = static_cast<T*>(segment.first_moment.data);
  T* second = static_cast<T*>(segment.second_moment.data);
  // Three sweeps over a piece that stays in the first-level cache.
  constexpr int64_t piece = 512;
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
    map_range<T>(start, stop, parameter, step, parameter, first, second);
  }
}

}  // namespace

void run(CpuStream stream, const AdamWStep& k) {
  int64_t total = 0;
  for (const AdamWSegment& segment : k.segments) total += segment.parameter.size();
  // Chunks of the segments laid end to end, so that many small parameters make one share.
  stream.for_each_chunk(total, elementwise_grain, [&](int64_t begin, int64_t end) {
    int64_t offset = 0;
    for (const AdamWSegment& segment : k.segments) {
      const int64_t size = segment.parameter.size();
      const int64_t first = std::max(begin - offset, int64_t{0});
      const int64_t last = std::min(end - offset, size);
      offset += size;
      if (first >= last) continue;
      if (segment.parameter.dtype == DType::f32)
        update(segment, Factors<float>(k, segment.weight_decay), first, last);
      else
        update(segment, Factors<double>(k, segment.weight_decay), first, last);
    }
  });
}

}  // namespace lockstep
