// SPDX-License-Identifier: Apache-2.0

// Powers (device/broadcast.cuh). An element takes some 60 instructions in double. A GPU with half as many
// double units as float units, such as an H200, should have time for them while its memory is busy. No GPU
// has been timed. Bytes: every operand and the result once. Bound: memory, or double arithmetic.

#include "lockstep/kernels/cuda/device/broadcast.cuh"
#include "lockstep/kernels/math.h"
#include "lockstep/kernels/power.h"

namespace lockstep {
namespace {

struct Function {
  LOCKSTEP_DEVICE float operator()(float a, float b) const { return math::pow(a, b); }
};

}  // namespace

void run(CudaStream stream, const Power& k) {
  cuda::with_device_type(k.y.dtype, [&]<class T>() {
    cuda::map_operands<T>(stream, Power::name, k.y, Function{}, Function{}, k.a, k.b);
  });
}

}  // namespace lockstep
