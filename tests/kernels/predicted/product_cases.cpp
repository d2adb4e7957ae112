// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::predicted {
namespace {

void add_batched(Cases& cases, DType dtype, const Shape& a_shape, const Shape& b_shape, bool transpose_a,
                 bool transpose_b, DType c_dtype) {
  const std::string name =
      concat(extents(a_shape), transpose_a ? " transposed" : "", " and ", extents(b_shape),
             transpose_b ? " transposed" : "", c_dtype == dtype ? "" : " in f32");
  add(cases, dtype, name, [=](Arrays& a) {
    const int64_t m = a_shape[transpose_a ? -1 : -2], n = b_shape[transpose_b ? -2 : -1];
    return BatchedMatMul{.a = a.input(a_shape, dtype),
                         .b = a.input(b_shape, dtype),
                         .c = a.output({a_shape[0], m, n}, c_dtype),
                         .transpose_a = transpose_a,
                         .transpose_b = transpose_b};
  });
}

/// A product by cuBLASLt, whose order of additions is unknown. Its factors are small whole numbers. So every
/// order gives the same sums, and the bits of the project's own epilogue can be predicted. The epilogues here
/// are none of cuBLASLt's.
void add_epilogue(Cases& cases, DType dtype, DType c_dtype, Activation activation, const std::string& name) {
  add(cases, dtype, name, [=](Arrays& a) {
    constexpr int64_t m = 48, n = 40, k = 64;
    MatMul product{.a = a.whole({m, k}, dtype), .b = a.whole({k, n}, dtype)};
    product.c = a.output({m, n}, c_dtype);
    if (activation != Activation::none) product.pre_activation = a.updated(a.input({m, n}, c_dtype, 4.0));
    product.activation = activation;
    product.scale = 0.0625;
    return product;
  });
}

/// An epilogue with a bias. With an odd number of columns it accesses single elements.
void add_epilogue_with_bias(Cases& cases, DType dtype, DType c_dtype) {
  for (const int64_t n : {40, 41})
    add(cases, dtype, concat("epilogue bias and gelu erf in ", c_dtype, " columns ", n), [=](Arrays& a) {
      constexpr int64_t m = 16, k = 24;
      MatMul product{.a = a.whole({m, k}, dtype), .b = a.whole({k, n}, dtype)};
      product.c = a.output({m, n}, c_dtype);
      product.bias = a.whole({n}, dtype);
      product.pre_activation = a.output({m, n}, c_dtype);
      product.activation = Activation::gelu_erf;
      return product;
    });
}

}  // namespace

Cases product_cases() {
  Cases cases;
  for (const DType dtype : float_dtypes) {
    add_batched(cases, dtype, {3, 20, 17}, {3, 17, 33}, false, false, dtype);
    add_batched(cases, dtype, {2, 17, 70}, {2, 17, 40}, true, false, dtype);
    add_batched(cases, dtype, {2, 65, 24}, {2, 66, 24}, false, true, dtype);
    add_epilogue(cases, dtype, dtype, Activation::gelu_erf, "epilogue gelu erf");
    add_epilogue(cases, dtype, dtype, Activation::gelu_erf_backward, "epilogue gelu erf backward");
    add_epilogue(cases, dtype, DType::f32, Activation::gelu_tanh, "epilogue gelu tanh in f32");
    add_epilogue(cases, dtype, DType::f32, Activation::gelu_tanh_backward,
                 "epilogue gelu tanh backward in f32");
    add_epilogue_with_bias(cases, dtype, dtype);
    if (dtype == DType::f32) continue;
    add_epilogue_with_bias(cases, dtype, DType::f32);
    add_batched(cases, dtype, {2, 20, 17}, {2, 17, 33}, false, false, DType::f32);
  }
  return cases;
}

}  // namespace lockstep::predicted
