// SPDX-License-Identifier: Apache-2.0

// Sigmoid and SiLU with their gradients. All are maps (device/map.cuh) that move every array once: 2 in a
// forward, 3 in a backward. Bound: memory.

#include "lockstep/kernels/cuda/device/map.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/sigmoid.h"

namespace lockstep {
namespace {

using cuda::map_views;

struct Sigmoid {
  LOCKSTEP_DEVICE float operator()(float x) const { return cuda::Logistic(x).value; }
};
struct SigmoidGradient {
  LOCKSTEP_DEVICE float operator()(float y, float dy) const { return dy * y * (1.0f - y); }
};
struct Silu {
  LOCKSTEP_DEVICE float operator()(float x) const { return x * cuda::Logistic(x).value; }
};
struct SiluGradient {
  LOCKSTEP_DEVICE float operator()(float x, float dy) const {
    const cuda::Logistic s(x);
    return dy * fmaf(x, s.value * s.complement, s.value);
  }
};

}  // namespace

void run(CudaStream stream, const SigmoidForward& k) { map_views(stream, k.y, Sigmoid{}, k.x); }
void run(CudaStream stream, const SigmoidBackward& k) {
  map_views(stream, k.dx, SigmoidGradient{}, k.y, k.dy);
}
void run(CudaStream stream, const SiluForward& k) { map_views(stream, k.y, Silu{}, k.x); }
void run(CudaStream stream, const SiluBackward& k) { map_views(stream, k.dx, SiluGradient{}, k.x, k.dy); }

}  // namespace lockstep
