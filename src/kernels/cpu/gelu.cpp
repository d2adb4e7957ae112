// SPDX-License-Identifier: Apache-2.0
#include "kernels/gelu.h"

#include "kernels/cpu/map.h"
#include "kernels/cpu/math.h"

namespace lockstep {
namespace {

template <Gelu form>
void forward(const CpuStream& stream, const GeluForward& k) {
  with_float_type(k.x.dtype, [&]<class T>() {
    map(
        stream, k.x.size(), k.y.as<T>(), [](auto x) { return math::gelu<form>(x); }, k.x.as<T>());
  });
}

template <Gelu form>
void backward(const CpuStream& stream, const GeluBackward& k) {
  with_float_type(k.x.dtype, [&]<class T>() {
    map(
        stream, k.x.size(), k.dx.as<T>(), [](auto x, auto dy) { return dy * math::gelu_slope<form>(x); },
        k.x.as<T>(), k.dy.as<T>());
  });
}

}  // namespace

void run(CpuStream stream, const GeluForward& k) {
  k.form == Gelu::tanh ? forward<Gelu::tanh>(stream, k) : forward<Gelu::erf>(stream, k);
}

void run(CpuStream stream, const GeluBackward& k) {
  k.form == Gelu::tanh ? backward<Gelu::tanh>(stream, k) : backward<Gelu::erf>(stream, k);
}

}  // namespace lockstep
