// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/comparison.h"

#include "lockstep/kernels/cpu/broadcast.h"

namespace lockstep {
namespace {

/// y = f(operands...) in any dtype.
template <class F, class... Operands>
void compute(const CpuStream& stream, const View& y, F f, const Operands&... operands) {
  with_any_type(y.dtype, [&]<class T>() { map_operands<T>(stream, y, f, operands...); });
}

}  // namespace

void run(CpuStream stream, const Compare& k) {
  const auto compare = [&](auto holds) {
    compute(
        stream, k.y, [holds](auto a, auto b) { return holds(a, b) ? decltype(a)(1) : decltype(a)(0); }, k.a,
        k.b);
  };
  switch (k.comparison) {
    case Comparison::less:
      return compare([](auto a, auto b) { return a < b; });
    case Comparison::less_equal:
      return compare([](auto a, auto b) { return a <= b; });
    case Comparison::equal:
      return compare([](auto a, auto b) { return a == b; });
    case Comparison::not_equal:
      return compare([](auto a, auto b) { return a != b; });
  }
}

void run(CpuStream stream, const Maximum& k) {
  compute(
      stream, k.y, [](auto a, auto b) { return a > b || a != a ? a : b; }, k.a, k.b);
}

void run(CpuStream stream, const Minimum& k) {
  compute(
      stream, k.y, [](auto a, auto b) { return a < b || a != a ? a : b; }, k.a, k.b);
}

void run(CpuStream stream, const Where& k) {
  compute(
      stream, k.y, [](auto mask, auto a, auto b) { return mask != 0 ? a : b; }, OperandView(k.mask), k.a,
      k.b);
}

}  // namespace lockstep
