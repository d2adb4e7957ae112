// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/embedding.h"

#include "lockstep/kernels/elementwise.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

Tensor embedding(const Tensor& ids, const Tensor& table) {
  const OperationScope operation("embedding");
  Shape shape = ids.shape();
  shape.append(table.shape()[-1]);
  const DType dtype = table.compute_dtype();
  const Tensor y = empty(shape, dtype, table.stream());
  launch(table.stream(), EmbeddingForward{.ids = ids.view(), .table = table.operand(dtype), .y = y.view()});
  return record("embedding", y, {table},
                [ids, table = table.detach()](const Tensor& dy, GradientContext& context) -> Gradients {
                  const auto [dtable, before] = context.gradient_target(0, table);
                  launch(dy.stream(), EmbeddingBackward{.ids = ids.view(),
                                                        .dy = dy.view(),
                                                        .dtable = dtable.view(),
                                                        .adds = static_cast<bool>(before)});
                  return {dtable};
                });
}

Tensor add_positions(const Tensor& x, const Tensor& table) {
  const OperationScope operation("add_positions");
  const Tensor y = empty_like(x);
  launch(x.stream(), AddPositions{.x = x.view(), .table = table.operand(x.dtype()), .y = y.view()});
  return record("add_positions", y, {x, table},
                [table = table.detach()](const Tensor& dy, GradientContext& context) -> Gradients {
                  if (!context.wants(1)) return {dy, Tensor()};
                  const Tensor dtable = context.gradient_memory(1, table);
                  launch(dy.stream(), AddPositionsBackward{.dy = dy.view(), .dtable = dtable.view()});
                  return {dy, dtable};
                });
}

}  // namespace lockstep
