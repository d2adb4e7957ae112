// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/sum.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

/// A linear layer as its gradients need it. A tensor that only an unneeded gradient would read is empty.
struct SavedLayer {
  Tensor x, weight, bias;
  bool is_out_in;  ///< the weight is [out, in]

  SavedLayer(const Tensor& input, const Tensor& of_weight, const Tensor& of_bias, WeightOrder order)
      : x(of_weight.requires_grad() ? input.detach() : Tensor()),
        weight(of_weight.detach()),
        bias(of_bias.requires_grad() ? of_bias.detach() : Tensor()),
        is_out_in(order == WeightOrder::out_in) {}

  /// Returns the gradient of the input from the gradient of the output, plus `carried` unless it is empty.
  Tensor input_gradient(const Tensor& dy, const Tensor& carried) const {
    const Tensor dx = empty(dy.shape().with_last(weight.shape()[is_out_in ? 1 : 0]), dy.dtype(), dy.stream());
    launch(dy.stream(), MatMul{.a = dy.view(),
                               .b = weight.operand(dy.dtype()),
                               .c = dx.view(),
                               .residual = carried.view(),
                               .transpose_b = !is_out_in});
    return dx;
  }

  /// Returns dweight and dbias, the sum of dy's rows. An unneeded one is empty. `input` is the index of the
  /// weight among the operation's inputs. dbias is `sum`, if a later operation has computed it. Else the
  /// matmul for a weight [in, out] computes both because dy is its right operand.
  std::pair<Tensor, Tensor> weight_gradients(const Tensor& dy, GradientContext& context, size_t input,
                                             const Tensor& sum) const {
    const bool wants_weight = context.wants(input);
    const auto [dweight, before] = wants_weight ? context.gradient_target(input, weight) : GradientTarget();
    const Tensor dbias = !bias ? Tensor() : sum ? sum : context.gradient_memory(input + 1, bias);
    if (wants_weight)
      launch(dy.stream(), MatMul{.a = is_out_in ? dy.view() : x.view(),
                                 .b = is_out_in ? x.view() : dy.view(),
                                 .c = dweight.view(),
                                 .residual = before.view(),
                                 .column_sum = is_out_in || sum ? View{} : dbias.view(),
                                 .transpose_a = true});
    if (dbias && !sum && (is_out_in || !wants_weight))
      launch(dy.stream(), ColumnSum{.x = dy.view(), .y = dbias.view()});
    return {dweight, dbias};
  }
};

/// The two layers of feed_forward() and `z`, the hidden layer before its GELU.
struct SavedFeedForward {
  SavedLayer in, out;
  Tensor z;
  Gelu form;

  /// Computes five gradients with four matmuls. The matmul of the hidden layer's gradient also applies the
  /// GELU's backward. Each bias's gradient is summed by the matmul that reads its rows.
  Gradients gradients(const Tensor& dy, GradientContext& context) const {
    const auto [dout, dbias_out] = out.weight_gradients(dy, context, 3, context.column_sum());
    const bool wants_dx = context.wants(0);
    if (!wants_dx && !context.wants(1) && !in.bias) return {{}, {}, {}, dout, dbias_out, dy};
    const Tensor dz = empty_like(z);
    launch(dy.stream(), MatMul{.a = dy.view(),
                               .b = out.weight.operand(dy.dtype()),
                               .c = dz.view(),
                               .pre_activation = z.view(),
                               .transpose_b = true,
                               .activation = form == Gelu::tanh ? Activation::gelu_tanh_backward
                                                                : Activation::gelu_erf_backward});
    const auto [din, dbias_in] = in.weight_gradients(dz, context, 1, {});
    return {wants_dx ? in.input_gradient(dz, {}) : Tensor(), din, dbias_in, dout, dbias_out, dy};
  }
};

/// Returns y, marked with the index of its bias. On a CPU the matmul sums dy, so that no bits change.
Tensor with_bias_input(const Tensor& y, const Tensor& bias, size_t i) {
  if (device_of(y.stream()) == Device::cuda && bias.requires_grad()) set_bias_input(y, i);
  return y;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
              WeightOrder order) {
  const OperationScope operation("linear");
  const bool is_out_in = order == WeightOrder::out_in;
  expect(weight.shape().rank() == 2 && x.shape().rank() >= 1 &&
             x.shape()[-1] == weight.shape()[is_out_in ? 1 : 0],
         "linear: x is ", x.shape(), ", weight is ", weight.shape(), "; x must be [..., in], weight ",
         is_out_in ? "[out, in]" : "[in, out]");
  const Tensor y = empty(x.shape().with_last(weight.shape()[is_out_in ? 0 : 1]), x.dtype(), x.stream());
  launch(x.stream(), MatMul{.a = x.view(),
                            .b = weight.operand(x.dtype()),
                            .bias = bias.operand(x.dtype()),
                            .c = y.view(),
                            .residual = residual.view(),
                            .transpose_b = is_out_in});
  return with_bias_input(
      record("linear", y, {x, weight, bias, residual},
             [layer = SavedLayer(x, weight, bias, order)](const Tensor& dy,
                                                          GradientContext& context) -> Gradients {
               // Layers that share an input, such as a query and a key, add their gradients here.
               const Tensor dx =
                   context.wants(0) ? layer.input_gradient(dy, context.take_gradient(0)) : Tensor();
               const auto [dweight, dbias] = layer.weight_gradients(dy, context, 1, context.column_sum());
               return {dx, dweight, dbias, dy};
             }),
      bias, 2);
}

Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Gelu form, const Tensor& residual) {
  const OperationScope operation("feed_forward");
  const auto& [in, bias_in, out, bias_out] = weights;
  expect(in.shape().rank() == 2 && out.shape().rank() == 2 && x.shape().rank() >= 1 &&
             x.shape()[-1] == in.shape()[0] && out.shape()[0] == in.shape()[1],
         "feed_forward: x is ", x.shape(), ", its weights are ", in.shape(), " and ", out.shape(),
         "; they must be [..., inputs], [inputs, hidden] and [hidden, outputs]");
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
  const SavedFeedForward saved{.in = {x, in, bias_in, WeightOrder::in_out},
                               .out = {h, out, bias_out, WeightOrder::in_out},
                               .z = z,
                               .form = form};
  return with_bias_input(
      record("feed_forward", y, inputs,
             [saved](const Tensor& dy, GradientContext& context) { return saved.gradients(dy, context); }),
      bias_out, 4);
}

}  // namespace lockstep
