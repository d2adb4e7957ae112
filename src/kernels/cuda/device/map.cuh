// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elementwise kernels. A thread handles `groups_per_thread` groups of neighbouring elements. A group is one
// access of at most 16 bytes per array. A warp's accesses are one contiguous piece. A thread issues all its
// loads before its first store. So 32 bytes per input are in flight in each of up to 2048 threads of a
// multiprocessor. Bytes: every array once. Bound: memory.

#include <cstdint>

#include "lockstep/kernels/cuda/device/dtype.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/view.h"

namespace lockstep::cuda {

/// Converts a stored element to an argument of an elementwise function. narrow() converts the result back.
/// Floats become float, and integers stay as they are.
LOCKSTEP_DEVICE float widen(float x) { return x; }
LOCKSTEP_DEVICE float widen(__nv_bfloat16 x) { return to_float(x); }
LOCKSTEP_DEVICE float widen(__half x) { return to_float(x); }
LOCKSTEP_DEVICE int32_t widen(int32_t x) { return x; }
LOCKSTEP_DEVICE void narrow(float& to, float value) { to = value; }
LOCKSTEP_DEVICE void narrow(__nv_bfloat16& to, float value) { to = from_float<__nv_bfloat16>(value); }
LOCKSTEP_DEVICE void narrow(__half& to, float value) { to = from_float<__half>(value); }
LOCKSTEP_DEVICE void narrow(int32_t& to, int32_t value) { to = value; }
LOCKSTEP_DEVICE void narrow(uint16_t& to, uint16_t value) { to = value; }
LOCKSTEP_DEVICE void narrow(uint32_t& to, uint32_t value) { to = value; }
LOCKSTEP_DEVICE void narrow(uint64_t& to, uint64_t value) { to = value; }

inline constexpr int map_threads = 256;
inline constexpr int groups_per_thread = 2;

/// The inputs of an elementwise function: up to three arrays of one type.
template <class X, int inputs>
struct Inputs {
  const X* at[inputs == 0 ? 1 : inputs];
};

template <int inputs, class F, class X>
LOCKSTEP_DEVICE auto apply(const F& f, [[maybe_unused]] const X* x) {
  if constexpr (inputs == 0)
    return f();
  else if constexpr (inputs == 1)
    return f(widen(x[0]));
  else if constexpr (inputs == 2)
    return f(widen(x[0]), widen(x[1]));
  else
    return f(widen(x[0]), widen(x[1]), widen(x[2]));
}

/// Computes y[i] = f(x[i]...) for one element.
template <int inputs, class F, class Y, class X>
LOCKSTEP_DEVICE void map_element(const F& f, int64_t i, Y* y, const Inputs<X, inputs>& x) {
  X values[inputs == 0 ? 1 : inputs];
#pragma unroll
  for (int input = 0; input < inputs; ++input) values[input] = x.at[input][i];
  narrow(y[i], apply<inputs>(f, values));
}

/// Computes y[i] = f(x[i]...) for i in [0, count), in groups of `width` elements. The first threads of the
/// grid take the remainder of `count`.
template <int width, int inputs, class F, class Y, class X>
__global__ void __launch_bounds__(map_threads) map_kernel(int64_t count, Y* y, Inputs<X, inputs> x, F f) {
  constexpr int arrays = inputs == 0 ? 1 : inputs;
  const int64_t groups = count / width;
  const int64_t first = int64_t{blockIdx.x} * (map_threads * groups_per_thread) + threadIdx.x;
  Group<X, width> loaded[groups_per_thread][arrays];
#pragma unroll
  for (int g = 0; g < groups_per_thread; ++g)
#pragma unroll
    for (int input = 0; input < inputs; ++input)
      if (first + g * map_threads < groups)
        loaded[g][input] = load_group<width>(x.at[input] + (first + g * map_threads) * width);
#pragma unroll
  for (int g = 0; g < groups_per_thread; ++g) {
    if (first + g * map_threads >= groups) break;
    Group<Y, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      X values[arrays];
#pragma unroll
      for (int input = 0; input < inputs; ++input) values[input] = loaded[g][input].values[i];
      narrow(result.values[i], apply<inputs>(f, values));
    }
    store_group(y + (first + g * map_threads) * width, result);
  }
  const int64_t rest = groups * width + int64_t{blockIdx.x} * map_threads + threadIdx.x;
  if (rest < count) map_element<inputs>(f, rest, y, x);
}

/// Enqueues y[i] = f(x[i]...) for i in [0, count). y may be one of the inputs. f is called with floats, or
/// with integers for integer arrays. Arrays that do not begin at a multiple of 16 bytes are accessed element
/// by element.
template <class F, class Y, class X, int inputs>
void map_arrays(const CudaStream& stream, int64_t count, F f, Y* y, const Inputs<X, inputs>& x) {
  constexpr int width = 16 / static_cast<int>(inputs == 0 || sizeof(Y) > sizeof(X) ? sizeof(Y) : sizeof(X));
  bool aligned = is_aligned(y);
  for (int input = 0; input < inputs; ++input) aligned = aligned && is_aligned(x.at[input]);
  const auto blocks = [&](int elements) {
    return blocks_for(count, int64_t{map_threads} * groups_per_thread * elements);
  };
  if (aligned)
    launch_grid(stream, {.blocks = blocks(width), .threads = map_threads}, map_kernel<width, inputs, F, Y, X>,
                count, y, x, f);
  else
    launch_grid(stream, {.blocks = blocks(1), .threads = map_threads}, map_kernel<1, inputs, F, Y, X>, count,
                y, x, f);
}

template <class F, class Y>
void map(const CudaStream& stream, int64_t count, F f, Y* y) {
  map_arrays(stream, count, f, y, Inputs<Y, 0>{});
}
template <class F, class Y, class X, class... More>
void map(const CudaStream& stream, int64_t count, F f, Y* y, const X* x, const More*... more) {
  map_arrays(stream, count, f, y, Inputs<X, 1 + sizeof...(More)>{{x, more...}});
}

/// Computes y = f(x...) for views of one dtype.
template <class F, class... Views>
void map_views(const CudaStream& stream, const View& y, F f, const Views&... x) {
  with_device_type(y.dtype, [&]<class T>() {
    map(stream, y.size(), f, static_cast<T*>(y.data), static_cast<const T*>(x.data)...);
  });
}

}  // namespace lockstep::cuda
