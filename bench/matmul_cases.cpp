// SPDX-License-Identifier: Apache-2.0
#include "eigen_product.h"
#include "kernel_cases.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace {

/// Operands of fused operations. An unused operand stays empty.
struct Fused {
  Tensor bias = {}, pre_activation = {}, residual = {}, column_sum = {};
};

struct Product {
  Shape a, b, c;
  MatMul form;  ///< sets the transposed operand and the activation
  DType c_dtype = DType::f32;
};

Work product_work(const Product& product, DType dtype, const Fused& fused = {}) {
  const Tensor a = random_tensor(product.a, dtype), b = random_tensor(product.b, dtype);
  const Tensor c = empty(product.c, product.c_dtype);
  MatMul kernel = product.form;
  kernel.a = a.view();
  kernel.b = b.view();
  kernel.c = c.view();
  kernel.bias = fused.bias.view();
  kernel.pre_activation = fused.pre_activation.view();
  kernel.residual = fused.residual.view();
  kernel.column_sum = fused.column_sum.view();
  std::vector<Tensor> operands{a, b, c};
  for (const Tensor& tensor : {fused.bias, fused.pre_activation, fused.residual, fused.column_sum})
    if (tensor) operands.push_back(tensor);
  Work work = computing(kernel, std::move(operands));
  work.has_plan = true;
  return work;
}

/// Makes an unfused matmul. On the CPU its peer is Eigen.
Work plain_work(const Product& product, DType dtype) {
  Work work = product_work(product, dtype);
  if (device_of(current_stream()) != Device::cpu) return work;
  const Tensor a = random_tensor(product.a, dtype), b = random_tensor(product.b, dtype);
  const Tensor c = empty(product.c, dtype);
  MatMul theirs = product.form;
  theirs.a = a.view();
  theirs.b = b.view();
  theirs.c = c.view();
  work.peer = [theirs, operands = std::vector{a, b, c}] { eigen_product(theirs); };
  return work;
}

Product y_of(const Layer& layer, DType dtype, Activation activation = Activation::none) {
  return {layer.x(), layer.weight(), layer.y(), {.activation = activation}, dtype};
}
Product dx_of(const Layer& layer, DType dtype, Activation activation = Activation::none) {
  return {layer.y(), layer.weight(), layer.x(), {.transpose_b = true, .activation = activation}, dtype};
}
Product dw_of(const Layer& layer, DType dtype) {
  return {layer.x(), layer.y(), layer.weight(), {.transpose_a = true}, accumulator_dtype(dtype)};
}

/// Adds the fused matmuls of a block's MLP. The first matmul fuses the GELU and the second fuses the residual
/// stream. The dx matmul fuses the GELU's gradient, and the dw matmul fuses the bias gradient.
void add_fused(std::vector<KernelCase>& cases, const ActivationSize& size, DType dtype) {
  const int64_t rows = size.batch * size.time, width = size.width;
  const Layer up{rows, width, 4 * width}, down{rows, 4 * width, width};
  const DType sums = accumulator_dtype(dtype);
  const auto up_with = [=](Activation activation) {
    const Fused fused{.bias = random_tensor({up.outputs}, dtype), .pre_activation = empty(up.y(), dtype)};
    return product_work(y_of(up, dtype, activation), dtype, fused);
  };
  cases.push_back({"matmul_bias_gelu_tanh", up.text(), [=] { return up_with(Activation::gelu_tanh); }});
  cases.push_back({"matmul_bias_gelu_erf", up.text(), [=] { return up_with(Activation::gelu_erf); }});
  cases.push_back({"matmul_bias_residual", down.text(), [=] {
                     const Fused fused{.bias = random_tensor({down.outputs}, dtype),
                                       .residual = random_tensor(down.y(), dtype)};
                     return product_work(y_of(down, dtype), dtype, fused);
                   }});
  cases.push_back({"matmul_dx_gelu_tanh", down.text(), [=] {
                     const Fused fused{.pre_activation = random_tensor(down.x(), dtype)};
                     return product_work(dx_of(down, dtype, Activation::gelu_tanh_backward), dtype, fused);
                   }});
  cases.push_back({"matmul_dw_bias", up.text(), [=] {
                     return product_work(dw_of(up, dtype), dtype, {.column_sum = empty({up.outputs}, sums)});
                   }});
}

}  // namespace

std::vector<KernelCase> matmul_cases(const CaseSizes& sizes) {
  std::vector<KernelCase> cases;
  const DType dtype = sizes.dtype;
  for (const Layer& layer : sizes.layers) {
    const auto add_case = [&](const char* kernel, const Product& product) {
      cases.push_back({kernel, layer.text(), [=] { return plain_work(product, dtype); }});
    };
    add_case("matmul_y", y_of(layer, dtype));
    add_case("matmul_dx", dx_of(layer, dtype));
    add_case("matmul_dw", dw_of(layer, dtype));
  }
  for (const ActivationSize& size : sizes.mlps) add_fused(cases, size, dtype);
  return cases;
}

}  // namespace lockstep
