// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/swiglu.h"

#include <cmath>

#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/math.h"

// As for GELU (gelu.h), the argument of an exponential, the exponential and the rest have a loop each. With e
// = e^-|g| neither the sigmoid s nor 1 - s loses digits: one is 1 / (1 + e), the other e / (1 + e).

namespace lockstep {
namespace {

constexpr int64_t piece = 128;

/// e[i] = e^-|gate[i]| for i in [0, count).
template <class S, class T>
[[gnu::always_inline]] inline void exponentiate(const S* gate, int64_t count, T* e) {
  for (int64_t i = 0; i < count; ++i) e[i] = -std::fabs(static_cast<T>(gate[i]));
  for (int64_t i = 0; i < count; ++i) e[i] = math::exp_of_nonpositive(e[i]);
}

template <class S>
[[gnu::always_inline]] inline void forward_piece(const S* gate, const S* up, S* y, int64_t count) {
  using T = Compute<S>;
  T e[piece];
  S result[piece];
  exponentiate(gate, count, e);
  for (int64_t i = 0; i < count; ++i) {
    const T g = static_cast<T>(gate[i]);
    const T sigmoid = (g < T(0) ? e[i] : T(1)) / (T(1) + e[i]);
    result[i] = static_cast<S>(g * sigmoid * static_cast<T>(up[i]));
  }
  std::memcpy(y, result, static_cast<size_t>(count) * sizeof(S));
}

template <class S>
[[gnu::always_inline]] inline void backward_piece(const S* gate, const S* up, const S* dy, S* dgate, S* dup,
                                                  int64_t count) {
  using T = Compute<S>;
  T e[piece];
  S of_gate[piece], of_up[piece];
  exponentiate(gate, count, e);
  for (int64_t i = 0; i < count; ++i) {
    const T g = static_cast<T>(gate[i]), d = static_cast<T>(dy[i]);
    const T larger = T(1) / (T(1) + e[i]);
    const T smaller = e[i] * larger;
    const T sigmoid = g < T(0) ? smaller : larger;
    of_gate[i] = static_cast<S>(d * static_cast<T>(up[i]) * std::fma(g, larger * smaller, sigmoid));
    of_up[i] = static_cast<S>(d * (g * sigmoid));
  }
  std::memcpy(dgate, of_gate, static_cast<size_t>(count) * sizeof(S));
  std::memcpy(dup, of_up, static_cast<size_t>(count) * sizeof(S));
}

}  // namespace

void run(CpuStream stream, const SwigluForward& k) {
  with_float_type(k.y.dtype, [&]<class S>() {
    stream.for_each_chunk(k.y.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
      const S *gate = k.gate.as<S>() + begin, *up = k.up.as<S>() + begin;
      S* y = k.y.as<S>() + begin;
      for_each_piece<piece>(
          end - begin, [=](int64_t first, int64_t count) __attribute__((always_inline)) {
            forward_piece(gate + first, up + first, y + first, count);
          });
    });
  });
}

void run(CpuStream stream, const SwigluBackward& k) {
  with_float_type(k.dy.dtype, [&]<class S>() {
    stream.for_each_chunk(k.dy.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
      const S *gate = k.gate.as<S>() + begin, *up = k.up.as<S>() + begin, *dy = k.dy.as<S>() + begin;
      S *dgate = k.dgate.as<S>() + begin, *dup = k.dup.as<S>() + begin;
      for_each_piece<piece>(
          end - begin, [=](int64_t first, int64_t count) __attribute__((always_inline)) {
            backward_piece(gate + first, up + first, dy + first, dgate + first, dup + first, count);
          });
    });
  });
}

}  // namespace lockstep
