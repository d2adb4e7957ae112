// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cross_entropy.h"

#include <algorithm>

#include "lockstep/kernels/cpu/lanes.h"
#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/math.h"

namespace lockstep {
namespace {

/// Returns the loss of one row. Writes its gradient to dx unless dx is null. `dx` may be x.
template <class S, class T>
T row_loss(const S* x, int64_t classes, int32_t target, T gradient_scale, S* dx) {
  const T largest = lane_max<T>(classes, x);
  const T target_logit = static_cast<T>(x[target]) - largest;
  const auto exponential = [=](T logit) { return math::exp(logit - largest); };
  // Types of 32 bits and more keep the exponentials in dx. Types of 16 bits would round them, so they are
  // computed again.
  constexpr bool keeps = std::same_as<S, T>;
  const T sum = lane_sum_of<T>(
      classes, [=](int64_t i, int64_t used) __attribute__((always_inline)) {
        const auto of_lanes =
            Simd<T>::of([=](int64_t lane) { return exponential(static_cast<T>(x[i + lane])); }, used);
        if (keeps && dx) of_lanes.store(dx + i, used);
        return of_lanes;
      });
  if (dx) {
    const T factor = gradient_scale / sum;
    map_range<T>(
        0, classes, dx, [=](T value) { return (keeps ? value : exponential(value)) * factor; },
        keeps ? dx : x);
    dx[target] = static_cast<S>(math::exp(target_logit) * factor - gradient_scale);
  }
  return math::log(sum) - target_logit;
}

void expect_targets(const CrossEntropy& k) {
  const int64_t classes = k.logits.shape[-1];
  const int32_t* targets = k.targets.as<int32_t>();
  for (int64_t row = 0; row < k.targets.size(); ++row)
    expect(targets[row] == k.ignore_index || (targets[row] >= 0 && targets[row] < classes), "target ",
           targets[row], " at position ", row, " is neither one of ", classes, " classes nor ignore_index ",
           k.ignore_index);
}

}  // namespace

void run(CpuStream stream, const CrossEntropy& k) {
  expect_targets(k);
  const int64_t classes = k.logits.shape[-1];
  const int32_t* targets = k.targets.as<int32_t>();
  // An exponential costs about as much as four additions.
  const int64_t grain = elementwise_grain / 4 / std::max<int64_t>(1, classes);
  with_float_type(k.logits.dtype, [&]<class S>() {
    using T = Compute<S>;
    const T unscaled = static_cast<T>(k.gradient_scale);
    const T gradient_scale = k.scale ? unscaled * *k.scale.as<T>() : unscaled;
    const S* logits = k.logits.as<S>();
    T* losses = k.losses.as<T>();
    S* dlogits = k.dlogits.as<S>();
    stream.for_each_chunk(k.targets.size(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        S* dx = dlogits ? dlogits + row * classes : nullptr;
        const bool counts = targets[row] != k.ignore_index;
        losses[row] =
            counts ? row_loss(logits + row * classes, classes, targets[row], gradient_scale, dx) : T(0);
        if (!counts && dx) std::fill(dx, dx + classes, S(T(0)));
      }
    });
  });
}

void run(CpuStream, const InverseCount& k) {
  const int32_t* targets = k.targets.as<int32_t>();
  const int64_t size = k.targets.size();
  const int64_t kept = size - std::count(targets, targets + size, k.ignore_index);
  const double inverse = kept == 0 ? 0.0 : 1.0 / static_cast<double>(kept);
  with_compute_type(k.y.dtype, [&]<class T>() { *k.y.as<T>() = static_cast<T>(inverse); });
}

}  // namespace lockstep
