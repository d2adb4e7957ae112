// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/elementwise.h"

#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/sigmoid.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

/// Launches the kernel that `make_kernel` returns for an output like x. Returns the output.
template <class MakeKernel>
Tensor output_like(const Tensor& x, MakeKernel make_kernel) {
  const Tensor y = empty_like(x);
  launch(x.stream(), make_kernel(y.view()));
  return y;
}

Tensor scaled(const Tensor& x, double factor) {
  return output_like(x, [&](View y) { return Scale{.x = x.view(), .y = y, .factor = factor}; });
}

Tensor masked(const Tensor& x, double probability, const RandomKey& key) {
  return output_like(
      x, [&](View y) { return Dropout{.x = x.view(), .y = y, .probability = probability, .key = key}; });
}

}  // namespace

Tensor computed(const Tensor& x) {
  const DType dtype = x.compute_dtype();
  if (dtype == x.dtype()) return x;
  const Tensor y = empty(x.shape(), dtype, x.stream());
  launch(x.stream(), Copy{.x = x.operand(dtype), .y = y.view()});
  return record("convert", y, {x},
                [from = x.dtype()](const Tensor& dy) -> Gradients { return {convert(dy, from)}; });
}

Tensor scale(const Tensor& given, double factor) {
  const OperationScope operation("scale");
  const Tensor x = computed(given);
  return record("scale", scaled(x, factor), {x},
                [factor](const Tensor& dy) -> Gradients { return {scaled(dy, factor)}; });
}

Tensor dropout(const Tensor& x, double probability, const RandomKey& key) {
  const OperationScope operation("dropout");
  expect(probability >= 0.0 && probability < 1.0, "dropout: the probability must be in [0, 1), not ",
         probability);
  if (probability == 0.0) return x;
  // The mask is a function of the key. So the gradient draws it again instead of storing it.
  return record("dropout", masked(x, probability, key), {x},
                [probability, key](const Tensor& dy) -> Gradients { return {masked(dy, probability, key)}; });
}

Tensor convert(const Tensor& x, DType dtype) {
  const OperationScope operation("convert");
  if (dtype == x.dtype()) return x;
  if (dtype == x.compute_dtype()) return computed(x);
  const Tensor y = empty(x.shape(), dtype, x.stream());
  launch(x.stream(), Convert{.x = x.view(), .y = y.view()});
  return record("convert", y, {x},
                [from = x.dtype()](const Tensor& dy) -> Gradients { return {convert(dy, from)}; });
}

Tensor relu(const Tensor& given) {
  const OperationScope operation("relu");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return ReluForward{.x = x.view(), .y = out}; });
  return record("relu", y, {x}, [x = x.detach()](const Tensor& dy) -> Gradients {
    return {output_like(x, [&](View dx) { return ReluBackward{.x = x.view(), .dy = dy.view(), .dx = dx}; })};
  });
}

Tensor tanh(const Tensor& given) {
  const OperationScope operation("tanh");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return TanhForward{.x = x.view(), .y = out}; });
  return record("tanh", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    return {output_like(y, [&](View dx) { return TanhBackward{.y = y.view(), .dy = dy.view(), .dx = dx}; })};
  });
}

Tensor exp(const Tensor& given) {
  const OperationScope operation("exp");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return Exp{.x = x.view(), .y = out}; });
  return record("exp", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    return {output_like(y, [&](View dx) { return Multiply{.a = dy.view(), .b = y.view(), .y = dx}; })};
  });
}

Tensor log(const Tensor& given) {
  const OperationScope operation("log");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return Log{.x = x.view(), .y = out}; });
  return record("log", y, {x}, [x = x.detach()](const Tensor& dy) -> Gradients {
    return {output_like(x, [&](View dx) { return Divide{.a = dy.view(), .b = x.view(), .y = dx}; })};
  });
}

Tensor sqrt(const Tensor& given) {
  const OperationScope operation("sqrt");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return Sqrt{.x = x.view(), .y = out}; });
  return record("sqrt", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    const Tensor half = scaled(dy, 0.5);
    return {output_like(y, [&](View dx) { return Divide{.a = half.view(), .b = y.view(), .y = dx}; })};
  });
}

Tensor rsqrt(const Tensor& given) {
  const OperationScope operation("rsqrt");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return Rsqrt{.x = x.view(), .y = out}; });
  return record("rsqrt", y, {x}, [x = x.detach(), y = y.detach()](const Tensor& dy) -> Gradients {
    const Tensor half = scaled(y, -0.5);
    const Tensor slope =
        output_like(y, [&](View out) { return Divide{.a = half.view(), .b = x.view(), .y = out}; });
    return {output_like(y, [&](View dx) { return Multiply{.a = dy.view(), .b = slope.view(), .y = dx}; })};
  });
}

Tensor sigmoid(const Tensor& given) {
  const OperationScope operation("sigmoid");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return SigmoidForward{.x = x.view(), .y = out}; });
  return record("sigmoid", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    return {
        output_like(y, [&](View dx) { return SigmoidBackward{.y = y.view(), .dy = dy.view(), .dx = dx}; })};
  });
}

Tensor silu(const Tensor& given) {
  const OperationScope operation("silu");
  const Tensor x = computed(given);
  const Tensor y = output_like(x, [&](View out) { return SiluForward{.x = x.view(), .y = out}; });
  return record("silu", y, {x}, [x = x.detach()](const Tensor& dy) -> Gradients {
    return {output_like(x, [&](View dx) { return SiluBackward{.x = x.view(), .dy = dy.view(), .dx = dx}; })};
  });
}

Tensor gelu(const Tensor& given, Gelu form) {
  const OperationScope operation("gelu");
  const Tensor x = computed(given);
  const Tensor y =
      output_like(x, [&](View out) { return GeluForward{.x = x.view(), .y = out, .form = form}; });
  return record("gelu", y, {x}, [x = x.detach(), form](const Tensor& dy) -> Gradients {
    return {output_like(
        x, [&](View dx) { return GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx, .form = form}; })};
  });
}

}  // namespace lockstep
