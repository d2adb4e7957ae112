// SPDX-License-Identifier: Apache-2.0

// SwiGLU and its gradients, element by element. Bytes: the forward (device/map.cuh) reads gate and up and
// writes y, 3 arrays. The backward reads gate, up and dy and writes two gradients, 5 arrays in one pass. Its
// threads have 48 bytes of loads in flight. An element takes some 15 instructions forward and 25 backward. An
// H200 has time for 42 and 70 (16-bit) while its memory is busy. Bound: memory.

#include "lockstep/kernels/cuda/device/map.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/swiglu.h"

namespace lockstep {
namespace {

using cuda::Group, cuda::launch_grid, cuda::load_group, cuda::map_threads, cuda::narrow, cuda::store_group,
    cuda::widen;

struct Swiglu {
  LOCKSTEP_DEVICE float operator()(float gate, float up) const {
    return gate * cuda::Logistic(gate).value * up;
  }
};

template <class T>
struct Backward {
  const T *gate, *up, *dy;
  T *dgate, *dup;
  int64_t count;
};

/// Computes the gradients of `width` neighbours from `first` on.
template <int width, class T>
LOCKSTEP_DEVICE void write_gradients(const Backward<T>& k, int64_t first) {
  const auto gate = load_group<width>(k.gate + first), up = load_group<width>(k.up + first);
  const auto dy = load_group<width>(k.dy + first);
  Group<T, width> dgate, dup;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    const float g = widen(gate.values[i]), d = widen(dy.values[i]);
    const cuda::Logistic s(g);
    narrow(dgate.values[i], d * widen(up.values[i]) * fmaf(g, s.value * s.complement, s.value));
    narrow(dup.values[i], d * (g * s.value));
  }
  store_group(k.dgate + first, dgate);
  store_group(k.dup + first, dup);
}

/// A thread takes a group of `width` elements. The first threads of the grid take the remainder.
template <int width, class T>
__global__ void __launch_bounds__(map_threads) backward_kernel(Backward<T> k) {
  const int64_t thread = int64_t{blockIdx.x} * map_threads + threadIdx.x;
  const int64_t groups = k.count / width;
  if (thread < groups) write_gradients<width>(k, thread * width);
  if (groups * width + thread < k.count) write_gradients<1>(k, groups * width + thread);
}

}  // namespace

void run(CudaStream stream, const SwigluForward& k) {
  cuda::with_device_type(k.y.dtype, [&]<class T>() {
    cuda::map(stream, k.y.size(), Swiglu{}, static_cast<T*>(k.y.data), static_cast<const T*>(k.gate.data),
              static_cast<const T*>(k.up.data));
  });
}

void run(CudaStream stream, const SwigluBackward& k) {
  cuda::with_device_type(k.dy.dtype, [&]<class T>() {
    const auto pointer = [](const View& view) { return static_cast<T*>(view.data); };
    const Backward<T> arguments{.gate = pointer(k.gate),
                                .up = pointer(k.up),
                                .dy = pointer(k.dy),
                                .dgate = pointer(k.dgate),
                                .dup = pointer(k.dup),
                                .count = k.dy.size()};
    const auto enqueue = [&]<int width>() {
      launch_grid(stream,
                  {.blocks = cuda::blocks_for(k.dy.size(), map_threads * width), .threads = map_threads},
                  backward_kernel<width, T>, arguments);
    };
    cuda::is_aligned(k.gate.data, k.up.data, k.dy.data, k.dgate.data, k.dup.data)
        ? enqueue.template operator()<cuda::Pack<T>::size>()
        : enqueue.template operator()<1>();
  });
}

}  // namespace lockstep
