// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul.h"

#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

Tensor multiply_matrices(const Tensor& a, const Tensor& b, DType dtype) {
  const Tensor y = empty({a.shape()[0], b.shape()[1]}, dtype, a.stream());
  launch(a.stream(), MatMul{.a = a.operand(dtype), .b = b.operand(dtype), .c = y.view()});
  return record(
      "matmul", y, {a, b},
      [a = a.detach(), b = b.detach(), dtype](const Tensor& dy, GradientContext& context) -> Gradients {
        const GradientTarget da = context.gradient_target(0, a), db = context.gradient_target(1, b);
        launch(a.stream(), MatMul{.a = dy.view(),
                                  .b = b.operand(dtype),
                                  .c = da.memory.view(),
                                  .residual = da.before.view(),
                                  .transpose_b = true});
        launch(a.stream(), MatMul{.a = a.operand(dtype),
                                  .b = dy.view(),
                                  .c = db.memory.view(),
                                  .residual = db.before.view(),
                                  .transpose_a = true});
        return {da.memory, db.memory};
      });
}

/// Returns one gradient of a batched matmul. It is computed for every matrix pair and summed over the
/// dimensions along which the input was repeated.
Tensor batch_gradient(const BroadcastInput& input, BatchedMatMul product, const Tensor& dy) {
  const bool is_whole = BatchedMatMul::leading(input.shape) == BatchedMatMul::leading(dy.shape());
  Shape shape = BatchedMatMul::leading(dy.shape());
  shape.append(input.shape[-2]);
  shape.append(input.shape[-1]);
  const Tensor gradients = empty(shape, is_whole ? input.dtype : dy.dtype(), dy.stream());
  product.c = gradients.view();
  launch(dy.stream(), product);
  return is_whole ? gradients : input.gradient(gradients);
}

Tensor multiply_batches(const Tensor& a, const Tensor& b, DType dtype) {
  Shape shape = broadcast(BatchedMatMul::leading(a.shape()), BatchedMatMul::leading(b.shape()), "matmul");
  shape.append(a.shape()[-2]);
  shape.append(b.shape()[-1]);
  const Tensor y = empty(shape, dtype, a.stream());
  launch(a.stream(), BatchedMatMul{.a = a.operand(dtype), .b = b.operand(dtype), .c = y.view()});
  return record("matmul", y, {a, b},
                [a = a.detach(), b = b.detach(), of_a = BroadcastInput(a), of_b = BroadcastInput(b),
                 dtype](const Tensor& dy) -> Gradients {
                  Tensor da, db;
                  if (of_a.is_wanted)
                    da = batch_gradient(
                        of_a, {.a = dy.view(), .b = b.operand(dtype), .c = {}, .transpose_b = true}, dy);
                  if (of_b.is_wanted)
                    db = batch_gradient(
                        of_b, {.a = a.operand(dtype), .b = dy.view(), .c = {}, .transpose_a = true}, dy);
                  return {da, db};
                });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const OperationScope operation("matmul");
  const Shape &left = a.shape(), &right = b.shape();
  expect(left.rank() >= 2 && right.rank() >= 2 && left[-1] == right[-2], "matmul: a is ", left, ", b is ",
         right, "; they must be [..., m, k] and [..., k, n]");
  expect(can_broadcast(BatchedMatMul::leading(left), BatchedMatMul::leading(right)), "matmul: a is ", left,
         ", b is ", right, "; the leading dimensions must be equal, or one of them 1");
  const DType dtype = common_dtype(a, b, "matmul");
  if (right.rank() > 2) return multiply_batches(a, b, dtype);
  if (left.rank() == 2) return multiply_matrices(a, b, dtype);
  // All rows of a use one matrix: a single matmul.
  return multiply_matrices(a.reshape({left.rows(), left[-1]}), b, dtype).reshape(left.with_last(right[-1]));
}

}  // namespace lockstep
