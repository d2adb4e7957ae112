// SPDX-License-Identifier: Apache-2.0
#include "eigen_product.h"
#include "kernel_cases.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

/// A Linear layer: x [rows, inputs], W [outputs, inputs], y [rows, outputs].
struct Layer {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;

  std::string text() const { return concat(rows, "x", inputs, "x", outputs); }
  double flops() const { return 2.0 * static_cast<double>(rows * inputs * outputs); }
};

Work work_of(const Layer& layer, MatMul product, const Shape& a, const Shape& b, const Shape& c) {
  const Tensor left = random_tensor(a), right = random_tensor(b), result = empty(c), peers = empty(c);
  product.a = left.view();
  product.b = right.view();
  product.c = result.view();
  MatMul theirs = product;
  theirs.c = peers.view();
  Work work = Work::by_flops(launching(product, {left, right, result}), layer.flops());
  work.peer = [theirs, operands = std::vector{left, right, peers}] { eigen_product(theirs); };
  return work;
}

Work fused_with_bias_and_gelu(const Layer& layer, Activation activation) {
  const Tensor x = random_tensor({layer.rows, layer.inputs});
  const Tensor weight = random_tensor({layer.outputs, layer.inputs});
  const Tensor bias = random_tensor({layer.outputs});
  const Tensor y = empty({layer.rows, layer.outputs}), before = empty(y.shape());
  const MatMul product{.a = x.view(),
                       .b = weight.view(),
                       .bias = bias.view(),
                       .c = y.view(),
                       .pre_activation = before.view(),
                       .transpose_b = true,
                       .activation = activation};
  return Work::by_flops(launching(product, {x, weight, bias, y, before}), layer.flops());
}

}  // namespace

std::vector<KernelCase> matmul_cases() {
  std::vector<KernelCase> cases;
  const auto add_layer = [&](const Layer& layer) {
    const Shape x{layer.rows, layer.inputs}, w{layer.outputs, layer.inputs}, y{layer.rows, layer.outputs};
    cases.push_back(
        {"matmul_y", layer.text(), [=] { return work_of(layer, {.transpose_b = true}, x, w, y); }});
    cases.push_back({"matmul_dx", layer.text(), [=] { return work_of(layer, {}, y, w, x); }});
    cases.push_back(
        {"matmul_dw", layer.text(), [=] { return work_of(layer, {.transpose_a = true}, y, x, w); }});
  };
  for (const int64_t rows : {192, 512, 2048}) {
    // Widths 128 and 384: queries, keys and values together; the attention's output; up and down in the MLP.
    for (const int64_t width : {128, 384})
      for (const auto& [inputs, outputs] :
           {std::pair{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}})
        add_layer({rows, inputs, outputs});
    for (const int64_t width : {128, 384}) {
      const Layer up{rows, width, 4 * width};
      cases.push_back({"matmul_bias_gelu_tanh", up.text(),
                       [=] { return fused_with_bias_and_gelu(up, Activation::gelu_tanh); }});
      cases.push_back({"matmul_bias_gelu_erf", up.text(),
                       [=] { return fused_with_bias_and_gelu(up, Activation::gelu_erf); }});
    }
  }
  return cases;
}

}  // namespace lockstep
