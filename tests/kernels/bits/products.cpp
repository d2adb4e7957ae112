// SPDX-License-Identifier: Apache-2.0
#include "kernels/bits/numbers.h"
#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep::bits {
namespace {

struct ProductSizes {
  int64_t m, n, k;
};
/// Thin and thick shapes, below and above the tiles of every processor, the blocks of depth and the groups of
/// blocks.
constexpr ProductSizes all_product_sizes[] = {
    {1, 1, 1},     {1, 50, 300},  {3, 5, 7},     {4, 24, 16},   {5, 3, 0},     {13, 33, 65},   {31, 17, 300},
    {33, 50, 257}, {40, 97, 520}, {64, 130, 31}, {12, 32, 256}, {36, 24, 769}, {129, 70, 1100}};

Shape matrix(int64_t rows, int64_t columns, bool is_transposed) {
  return is_transposed ? Shape{columns, rows} : Shape{rows, columns};
}

void print_product(const ProductSizes& size, DType dtype, bool transpose_a, bool transpose_b,
                   bool is_spread) {
  const auto draw = [&](const Shape& shape, uint64_t seed) {
    return is_spread ? spread(shape, dtype, seed) : uniform(shape, dtype, seed);
  };
  Values a = draw(matrix(size.m, size.k, transpose_a), 1), b = draw(matrix(size.k, size.n, transpose_b), 2);
  Values c({size.m, size.n}, accumulator_dtype(dtype));
  launch_here(MatMul{
      .a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = transpose_a, .transpose_b = transpose_b});
  print_line(concat("matmul ", dtype, " ", size.m, "x", size.n, "x", size.k, transpose_a ? " ta" : "",
                    transpose_b ? " tb" : "", is_spread ? " spread" : ""),
             c);
}

/// Prints products with a bias, an activation or its gradient, or a residual.
void print_ends(const ProductSizes& size, DType dtype) {
  Values a = uniform({size.m, size.k}, dtype, 3), b = uniform({size.k, size.n}, dtype, 4);
  Values bias = uniform({size.n}, dtype, 5), residual = uniform({size.m, size.n}, dtype, 6);
  Values column_sum({size.n}, accumulator_dtype(dtype));
  Values c({size.m, size.n}, dtype), kept({size.m, size.n}, dtype);
  const std::string label = concat("matmul ", dtype, " ", size.m, "x", size.n, "x", size.k);
  MatMul product{.a = a.view(), .b = b.view(), .bias = bias.view(), .c = c.view()};
  for (const auto form : {Activation::gelu_tanh, Activation::gelu_erf}) {
    product.activation = form;
    product.pre_activation = kept.view();
    launch_here(product);
    print_line(label + (form == Activation::gelu_tanh ? " gelu_tanh" : " gelu_erf"), c, kept);
  }
  launch_here(MatMul{.a = a.view(),
                     .b = b.view(),
                     .bias = bias.view(),
                     .c = c.view(),
                     .residual = residual.view(),
                     .scale = 0.37});
  print_line(label + " residual", c);
  for (const auto form : {Activation::gelu_tanh_backward, Activation::gelu_erf_backward}) {
    launch_here(MatMul{.a = a.view(),
                       .b = b.view(),
                       .c = c.view(),
                       .pre_activation = kept.view(),
                       .column_sum = column_sum.view(),
                       .activation = form});
    print_line(
        label + (form == Activation::gelu_tanh_backward ? " gelu_tanh_backward" : " gelu_erf_backward"), c,
        column_sum);
  }
}

void print_batched(DType dtype) {
  Values a = uniform({3, 2, 19, 37}, dtype, 7), b = uniform({2, 37, 29}, dtype, 8);
  Values c({3, 2, 19, 29}, dtype);
  launch_here(BatchedMatMul{.a = a.view(), .b = b.view(), .c = c.view()});
  print_line(concat("batched_matmul ", dtype), c);
}

/// Prints sums so close to the middle of two floats that only a single rounding is right.
void print_halfway(DType dtype) {
  Values a({40, 2}, dtype), b = positive({2, 90}, dtype, 11, 0, 1), c({40, 90}, dtype);
  with_compute_type(dtype, [&]<class T>() {
    const T last = std::numeric_limits<T>::epsilon(), half = std::sqrt(last / 2);
    for (int64_t row = 0; row < 40; ++row) {
      a.view().as<T>()[2 * row] = T{1};
      a.view().as<T>()[2 * row + 1] = (row % 2 == 0 ? 1 : -1) * half * (1 + last);
    }
    for (int64_t column = 0; column < 90; ++column) b.view().as<T>()[90 + column] = half * (1 - last);
  });
  launch_here(MatMul{.a = a.view(), .b = b.view(), .c = c.view()});
  print_line(concat("matmul ", dtype, " halfway"), c);
}

}  // namespace

void print_products() {
  for (const DType dtype : float_types) {
    for (const ProductSizes& size : all_product_sizes)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
          print_product(size, dtype, transpose_a, transpose_b, transpose_a != transpose_b);
    for (const ProductSizes& size : {all_product_sizes[5], all_product_sizes[7], all_product_sizes[1]})
      print_ends(size, dtype);
    print_batched(dtype);
  }
  for (const DType dtype : {DType::f32, DType::f64}) print_halfway(dtype);
  // The values are so small that fp32 has subnormal sums, and bf16 has zeros instead.
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const ProductSizes& size : all_product_sizes) {
      Values a = spread({size.m, size.k}, dtype, 9, -75, -50),
             b = spread({size.k, size.n}, dtype, 10, -80, -45);
      Values c({size.m, size.n}, DType::f32);
      launch_here(MatMul{.a = a.view(), .b = b.view(), .c = c.view()});
      print_line(concat("matmul ", dtype, " ", size.m, "x", size.n, "x", size.k, " tiny"), c);
    }
}

}  // namespace lockstep::bits
