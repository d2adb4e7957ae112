// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"
#include "kernels/sum.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

void check_feed_forward(const Tensor& x, const FeedForwardWeights& weights) {
  const Shape& in = weights.in.shape();
  const Shape& out = weights.out.shape();
  expect(
      in.rank() == 2 && out.rank() == 2 && x.shape().rank() >= 1 && x.shape()[-1] == in[0] && out[0] == in[1],
      "feed_forward: x is ", x.shape(), ", its weights are ", in, " and ", out,
      "; they must be [..., inputs], [inputs, hidden] and [hidden, outputs]");
}

/// Data of the forward that the gradient needs: `z` is the hidden layer before its GELU, `h` after it. A
/// tensor is empty if only an unneeded gradient would read it.
struct Saved {
  Tensor x, z, h, in, bias_in, out, bias_out;
  Gelu form;
  bool wants_dx;
};

/// One of the two layers: its input, weight and bias. `input` is the index of the weight among the
/// operation's inputs. `x` is empty if the weight needs no gradient. `bias` is empty if it needs no gradient
/// itself.
struct Layer {
  const Tensor &x, &weight, &bias;
  size_t input;
};

/// Returns dweight and dbias from the gradient of the layer's output.
std::pair<Tensor, Tensor> weight_gradients(const Layer& layer, const Tensor& dy, GradientContext& context) {
  const bool wants_weight = context.wants(layer.input);
  const auto [dweight, before] =
      wants_weight ? context.gradient_target(layer.input, layer.weight) : GradientTarget();
  const Tensor dbias = layer.bias ? context.gradient_memory(layer.input + 1, layer.bias) : Tensor();
  if (wants_weight)
    launch(dy.stream(), MatMul{.a = layer.x.view(),
                               .b = dy.view(),
                               .c = dweight.view(),
                               .residual = before.view(),
                               .column_sum = dbias.view(),
                               .transpose_a = true});
  else if (dbias)
    launch(dy.stream(), ColumnSum{.x = dy.view(), .y = dbias.view()});
  return {dweight, dbias};
}

/// Computes five gradients with four matmuls. The matmul of the hidden layer's gradient also applies the
/// GELU's backward. Each bias's gradient is summed by the matmul that reads its rows.
Gradients gradients(const Saved& saved, const Tensor& dy, GradientContext& context) {
  const Stream& stream = dy.stream();
  const auto [dout, dbias_out] = weight_gradients({saved.h, saved.out, saved.bias_out, 3}, dy, context);
  if (!saved.wants_dx && !context.wants(1) && !saved.bias_in) return {{}, {}, {}, dout, dbias_out, dy};
  const Tensor dz = empty_like(saved.z);
  launch(stream, MatMul{.a = dy.view(),
                        .b = saved.out.operand(dy.dtype()),
                        .c = dz.view(),
                        .pre_activation = saved.z.view(),
                        .transpose_b = true,
                        .activation = saved.form == Gelu::tanh ? Activation::gelu_tanh_backward
                                                               : Activation::gelu_erf_backward});
  const auto [din, dbias_in] = weight_gradients({saved.x, saved.in, saved.bias_in, 1}, dz, context);
  Tensor dx;
  if (saved.wants_dx) {
    dx = empty(dy.shape().with_last(saved.in.shape()[0]), dy.dtype(), stream);
    launch(stream,
           MatMul{.a = dz.view(), .b = saved.in.operand(dy.dtype()), .c = dx.view(), .transpose_b = true});
  }
  return {dx, din, dbias_in, dout, dbias_out, dy};
}

}  // namespace

Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Gelu form, const Tensor& residual) {
  check_feed_forward(x, weights);
  const auto& [in, bias_in, out, bias_out] = weights;
  const std::vector<Tensor> inputs{x, in, bias_in, out, bias_out, residual};
  const Tensor h = empty(x.shape().with_last(in.shape()[1]), x.dtype(), x.stream());
  const Tensor z = is_recorded(inputs) ? empty_like(h) : Tensor();
  launch(x.stream(), MatMul{.a = x.view(),
                            .b = in.operand(x.dtype()),
                            .bias = bias_in.operand(x.dtype()),
                            .c = h.view(),
                            .pre_activation = z.view(),
                            .activation = form == Gelu::tanh ? Activation::gelu_tanh : Activation::gelu_erf});
  const Tensor y = empty(x.shape().with_last(out.shape()[1]), x.dtype(), x.stream());
  launch(x.stream(), MatMul{.a = h.view(),
                            .b = out.operand(x.dtype()),
                            .bias = bias_out.operand(x.dtype()),
                            .c = y.view(),
                            .residual = residual.view()});
  const Saved saved{.x = in.requires_grad() ? x.detach() : Tensor(),
                    .z = z,
                    .h = out.requires_grad() ? h : Tensor(),
                    .in = in.detach(),
                    .bias_in = bias_in.requires_grad() ? bias_in.detach() : Tensor(),
                    .out = out.detach(),
                    .bias_out = bias_out.requires_grad() ? bias_out.detach() : Tensor(),
                    .form = form,
                    .wants_dx = x.requires_grad()};
  return record("feed_forward", y, inputs, [saved](const Tensor& dy, GradientContext& context) {
    return gradients(saved, dy, context);
  });
}

}  // namespace lockstep
