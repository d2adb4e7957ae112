// SPDX-License-Identifier: Apache-2.0

// Sums, differences, products and quotients (device/broadcast.cuh). The operation is an argument of the
// kernel if an operand is repeated, so that one kernel serves all four. Bound: memory.

#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/cuda/device/broadcast.cuh"

namespace lockstep {
namespace {

enum class Operation { add, subtract, multiply, divide };

LOCKSTEP_DEVICE float apply(Operation operation, float a, float b) {
  if (operation == Operation::add) return a + b;
  if (operation == Operation::subtract) return a - b;
  if (operation == Operation::multiply) return a * b;
  return a / b;
}

template <Operation operation>
struct Function {
  LOCKSTEP_DEVICE float operator()(float a, float b) const { return apply(operation, a, b); }
};
struct AnyFunction {
  Operation operation;
  LOCKSTEP_DEVICE float operator()(float a, float b) const { return apply(operation, a, b); }
};

template <Operation operation, class K>
void compute(const CudaStream& stream, const K& k) {
  cuda::with_device_type(k.y.dtype, [&]<class T>() {
    cuda::map_operands<T>(stream, K::name, k.y, Function<operation>{}, AnyFunction{operation}, k.a, k.b);
  });
}

}  // namespace

void run(CudaStream stream, const Add& k) { compute<Operation::add>(stream, k); }
void run(CudaStream stream, const Subtract& k) { compute<Operation::subtract>(stream, k); }
void run(CudaStream stream, const Multiply& k) { compute<Operation::multiply>(stream, k); }
void run(CudaStream stream, const Divide& k) { compute<Operation::divide>(stream, k); }

}  // namespace lockstep
