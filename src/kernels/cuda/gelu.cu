// SPDX-License-Identifier: Apache-2.0

// GELU and its gradient, element by element (device/map.cuh). Bytes: the forward reads x and writes y, 2
// arrays. The backward reads x and dy and writes dx, 3 arrays. The tanh form takes some 10 instructions per
// element, and the erf form 30. An H200 has time for 28 (16-bit) while its memory is busy. Bound: memory. The
// erf form of 16-bit tensors is bound by arithmetic.

#include "lockstep/kernels/cuda/device/map.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/gelu.h"

namespace lockstep {
namespace {

template <Gelu form>
struct GeluOf {
  LOCKSTEP_DEVICE float operator()(float x) const { return cuda::gelu<form>(x); }
};

template <Gelu form>
struct GeluGradient {
  LOCKSTEP_DEVICE float operator()(float x, float dy) const { return dy * cuda::gelu_slope<form>(x); }
};

}  // namespace

void run(CudaStream stream, const GeluForward& k) {
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    const auto* x = static_cast<const T*>(k.x.data);
    auto* y = static_cast<T*>(k.y.data);
    k.form == Gelu::tanh ? cuda::map(stream, k.x.size(), GeluOf<Gelu::tanh>{}, y, x)
                         : cuda::map(stream, k.x.size(), GeluOf<Gelu::erf>{}, y, x);
  });
}

void run(CudaStream stream, const GeluBackward& k) {
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    const auto* x = static_cast<const T*>(k.x.data);
    const auto* dy = static_cast<const T*>(k.dy.data);
    auto* dx = static_cast<T*>(k.dx.data);
    k.form == Gelu::tanh ? cuda::map(stream, k.x.size(), GeluGradient<Gelu::tanh>{}, dx, x, dy)
                         : cuda::map(stream, k.x.size(), GeluGradient<Gelu::erf>{}, dx, x, dy);
  });
}

}  // namespace lockstep
