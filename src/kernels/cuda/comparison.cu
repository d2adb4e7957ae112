// SPDX-License-Identifier: Apache-2.0

// Comparisons, the larger or smaller of two, and selections by a mask (device/broadcast.cuh). The operation
// is an argument of the kernel. Bytes: every operand and the result once. Bound: memory.

#include "lockstep/kernels/comparison.h"
#include "lockstep/kernels/cuda/device/broadcast.cuh"

namespace lockstep {
namespace {

enum class Operation { less, less_equal, equal, not_equal, maximum, minimum };

Operation operation_of(Comparison comparison) {
  switch (comparison) {
    case Comparison::less:
      return Operation::less;
    case Comparison::less_equal:
      return Operation::less_equal;
    case Comparison::equal:
      return Operation::equal;
    case Comparison::not_equal:
      break;
  }
  return Operation::not_equal;
}

/// The elements are floats or 32-bit integers. A maximum or minimum is NaN if an operand is.
struct Function {
  Operation operation;

  template <class C>
  LOCKSTEP_DEVICE C operator()(C a, C b) const {
    if (operation == Operation::maximum) return a > b || a != a ? a : b;
    if (operation == Operation::minimum) return a < b || a != a ? a : b;
    bool holds = a != b;
    if (operation == Operation::less) holds = a < b;
    if (operation == Operation::less_equal) holds = a <= b;
    if (operation == Operation::equal) holds = a == b;
    return holds ? C(1) : C(0);
  }
};

struct Selection {
  template <class C>
  LOCKSTEP_DEVICE C operator()(C mask, C a, C b) const {
    return mask != C(0) ? a : b;
  }
};

template <class K>
void compute(const CudaStream& stream, const K& k, Operation operation) {
  cuda::with_any_device_type(k.y.dtype, [&]<class T>() {
    cuda::map_operands<T>(stream, K::name, k.y, Function{operation}, Function{operation}, k.a, k.b);
  });
}

}  // namespace

void run(CudaStream stream, const Compare& k) { compute(stream, k, operation_of(k.comparison)); }
void run(CudaStream stream, const Maximum& k) { compute(stream, k, Operation::maximum); }
void run(CudaStream stream, const Minimum& k) { compute(stream, k, Operation::minimum); }

void run(CudaStream stream, const Where& k) {
  cuda::with_any_device_type(k.y.dtype, [&]<class T>() {
    cuda::map_operands<T>(stream, Where::name, k.y, Selection{}, Selection{}, OperandView(k.mask), k.a, k.b);
  });
}

}  // namespace lockstep
