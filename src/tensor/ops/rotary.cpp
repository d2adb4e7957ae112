// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/rotary.h"

#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

Tensor make_table(const Tensor& frequencies, const Tensor& positions, int64_t tokens) {
  const Tensor table = empty({tokens, 2 * frequencies.size()}, frequencies.dtype(), frequencies.stream());
  launch(frequencies.stream(), RotaryTable{.frequencies = frequencies.view(),
                                           .positions = positions ? positions.view() : View{},
                                           .y = table.view()});
  return table;
}

Tensor rotated(const Tensor& x, const Tensor& table, bool inverse) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Rotate{.x = x.view(), .table = table.view(), .y = y.view(), .inverse = inverse});
  return y;
}

}  // namespace

Tensor rotary_table(const Tensor& frequencies, int64_t tokens) {
  const OperationScope operation("rotary_table");
  return make_table(frequencies, {}, tokens);
}

Tensor rotary_table(const Tensor& frequencies, const Tensor& positions) {
  const OperationScope operation("rotary_table");
  return make_table(frequencies, positions, positions.size());
}

Tensor rotate(const Tensor& x, const Tensor& table) {
  const OperationScope operation("rotate");
  return record("rotate", rotated(x, table, false), {x},
                [table](const Tensor& dy) -> Gradients { return {rotated(dy, table, true)}; });
}

}  // namespace lockstep
