// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/arithmetic.h"

#include "lockstep/kernels/cpu/broadcast.h"

namespace lockstep {
namespace {

/// y = f(a, b).
template <class K, class F>
void compute(const CpuStream& stream, const K& k, F f) {
  with_float_type(k.y.dtype, [&]<class T>() { map_operands<T>(stream, k.y, f, k.a, k.b); });
}

}  // namespace

void run(CpuStream stream, const Add& k) {
  compute(stream, k, [](auto a, auto b) { return a + b; });
}

void run(CpuStream stream, const Subtract& k) {
  compute(stream, k, [](auto a, auto b) { return a - b; });
}

void run(CpuStream stream, const Multiply& k) {
  compute(stream, k, [](auto a, auto b) { return a * b; });
}

void run(CpuStream stream, const Divide& k) {
  compute(stream, k, [](auto a, auto b) { return a / b; });
}

}  // namespace lockstep
