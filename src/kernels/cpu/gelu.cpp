// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cpu/gelu.h"

namespace lockstep {
namespace {

template <Gelu form>
void forward(const CpuStream& stream, const GeluForward& k) {
  with_float_type(k.x.dtype, [&]<class S>() {
    stream.for_each_chunk(k.x.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
      gelu::forward<form>(k.x.as<S>() + begin, k.y.as<S>() + begin, end - begin);
    });
  });
}

template <Gelu form>
void backward(const CpuStream& stream, const GeluBackward& k) {
  with_float_type(k.x.dtype, [&]<class S>() {
    stream.for_each_chunk(k.x.size(), elementwise_grain, [&](int64_t begin, int64_t end) {
      gelu::backward<form>(k.x.as<S>() + begin, k.dy.as<S>() + begin, k.dx.as<S>() + begin, end - begin);
    });
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
