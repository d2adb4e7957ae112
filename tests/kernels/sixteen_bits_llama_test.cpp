// SPDX-License-Identifier: Apache-2.0
// The kernels of a Llama in 16 bits, compared with fp32 as in sixteen_bits_test.cpp.
#include "kernels/rounded_once.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/rotary.h"
#include "lockstep/kernels/swiglu.h"

namespace lockstep::testing {
namespace {

TEST(SixteenBits, RmsNorm) {
  for (const int64_t columns : {1, 9, 97, 700})
    expect_rounded_once([&](const Numbers& in, int threads) {
      const Shape shape{95, columns};
      Values x = in.uniform(shape, 1), weight = in.uniform({columns}, 3), y = in.result(shape), rstd({95});
      launch_on(threads,
                LayerNormForward{.x = x.view(), .weight = weight.view(), .y = y.view(), .rstd = rstd.view()});
      Values dy = in.uniform(shape, 5), dx = in.result(shape), dweight({columns});
      launch_on(threads, LayerNormBackward{.x = x.view(),
                                           .weight = weight.view(),
                                           .rstd = rstd.view(),
                                           .dy = dy.view(),
                                           .dx = dx.view(),
                                           .dweight = dweight.view()});
      return Outputs{y, rstd, dx, dweight};
    });
}

TEST(SixteenBits, SwigluAndRotations) {
  for (const int64_t half : {1, 9, 97, 700})
    expect_rounded_once([&](const Numbers& in, int threads) {
      const Shape shape{5, 19, 4 * half};
      Values gate = in.uniform(shape, 1, -9.0, 9.0), up = in.uniform(shape, 2), dy = in.uniform(shape, 3);
      Values y = in.result(shape), dgate = in.result(shape), dup = in.result(shape);
      launch_on(threads, SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
      launch_on(threads, SwigluBackward{.gate = gate.view(),
                                        .up = up.view(),
                                        .dy = dy.view(),
                                        .dgate = dgate.view(),
                                        .dup = dup.view()});
      Values table = Values::uniform({19, 2 * half}, DType::f32, 4), rotated = in.result(shape),
             back = in.result(shape);
      launch_on(threads, Rotate{.x = up.view(), .table = table.view(), .y = rotated.view()});
      launch_on(threads, Rotate{.x = up.view(), .table = table.view(), .y = back.view(), .inverse = true});
      return Outputs{y, dgate, dup, rotated, back};
    });
}

}  // namespace
}  // namespace lockstep::testing
