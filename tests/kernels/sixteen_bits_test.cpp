// SPDX-License-Identifier: Apache-2.0
// 16 bits are storage only. A kernel computes the results of equal numbers stored in fp32, and rounds each
// result once. Every test therefore compares two runs of one kernel.
#include <array>
#include <functional>

#include "kernels/batched_matmul_cases.h"
#include "kernels/product_operands.h"
#include "kernels/rounded_once.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/softmax.h"
#include "lockstep/kernels/sum.h"
#include "lockstep/kernels/transpose.h"

namespace lockstep::testing {
namespace {

// Whole tiles, partial tiles, single rows and columns, empty sums, and sums of several blocks.
constexpr std::array<ProductCase, 8> products = {{{1, 7, 3},
                                                  {3, 70, 65},
                                                  {5, 0, 9},
                                                  {24, 64, 128},
                                                  {13, 33, 31},
                                                  {31, 257, 33},
                                                  {49, 300, 65},
                                                  {100, 255, 129}}};

/// Calls body(kernel without c, numbers, threads) for products of all shapes and orders.
void for_each_product(const std::function<Outputs(MatMul, const Numbers&, int)>& body) {
  for (const ProductCase& size : products)
    for_each_order(size, [&](bool of_a, bool of_b) {
      expect_rounded_once([&](const Numbers& in, int threads) {
        Values a = in.uniform(of_a ? Shape{size.k, size.m} : Shape{size.m, size.k}, 1);
        Values b = in.uniform(of_b ? Shape{size.n, size.k} : Shape{size.k, size.n}, 2);
        return body({.a = a.view(), .b = b.view(), .transpose_a = of_a, .transpose_b = of_b}, in, threads);
      });
    });
}

TEST(SixteenBits, ProductsAreOfFp32) {
  for_each_product([](MatMul kernel, const Numbers& in, int threads) {
    const Shape shape{kernel.m(), kernel.n()};
    Values bias = in.uniform({kernel.n()}, 3), c = in.uniform(shape, 4), wide(shape), sums({kernel.n()});
    kernel.c = wide.view();  // fp32, like the gradient of a weight with column sums
    if (!kernel.transpose_b) kernel.column_sum = sums.view();
    launch_on(threads, kernel);
    kernel.column_sum = {};
    kernel.bias = bias.view();
    kernel.residual = kernel.c = c.view();
    launch_on(threads, kernel);
    return Outputs{wide, sums, c};
  });
}

TEST(SixteenBits, AWeightsGradientIsAddedToInFp32) {
  for_each_product([](MatMul kernel, const Numbers&, int threads) {
    Values gradient = Values::uniform({kernel.m(), kernel.n()}, DType::f32, 5);
    kernel.residual = kernel.c = gradient.view();
    launch_on(threads, kernel);
    return Outputs{gradient};
  });
}

// GELU reads the sum before rounding, whether the sum is kept or not.
TEST(SixteenBits, ActivationsAreOfFp32) {
  for_each_product([](MatMul kernel, const Numbers& in, int threads) {
    const Shape shape{kernel.m(), kernel.n()};
    Outputs outputs;
    Values bias = in.uniform({kernel.n()}, 3), c = in.result(shape), kept = in.result(shape);
    kernel.c = c.view();
    kernel.bias = bias.view();
    for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf}) {
      kernel.activation = activation;
      kernel.pre_activation = {};
      launch_on(threads, kernel);
      outputs.push_back(c);
      kernel.pre_activation = kept.view();
      launch_on(threads, kernel);
      EXPECT_EQ(c, outputs.back());
      outputs.push_back(kept);
    }
    kernel.bias = {};
    Values before = in.uniform(shape, 6, -4.0, 4.0);
    kernel.pre_activation = before.view();
    for (const Activation activation : {Activation::gelu_tanh_backward, Activation::gelu_erf_backward}) {
      kernel.activation = activation;
      launch_on(threads, kernel);
      outputs.push_back(c);
    }
    return outputs;
  });
}

TEST(SixteenBits, BatchesOfProductsAreOfFp32) {
  for (const BatchedCase& shapes : batched_cases)
    for (const bool transposed : {false, true})
      expect_rounded_once([&](const Numbers& in, int threads) {
        BatchedOperands operands(shapes, in.dtype, transposed, !transposed);
        Values a = in.uniform(operands.a.shape(), 1), b = in.uniform(operands.b.shape(), 2);
        Values c = in.result(shapes.c), wide(shapes.c);
        BatchedMatMul kernel = operands.kernel;
        kernel.a = a.view(), kernel.b = b.view();
        for (Values* result : {&c, &wide}) {
          kernel.c = result->view();
          launch_on(threads, kernel);
        }
        return Outputs{c, wide};
      });
}

/// All bit patterns, including infinities and NaNs, occur in some lane of every kind of panel.
TEST(SixteenBits, PanelsHoldEveryPattern) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const bool transpose_a : {false, true}) {
      constexpr int64_t depth = 5, rows = 0x10000;
      Values a(transpose_a ? Shape{depth, rows} : Shape{rows, depth}, dtype), b({depth, 1}, dtype);
      auto* patterns = static_cast<uint16_t*>(a.view().data);
      for (int64_t d = 0; d < depth; ++d) {
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t i = 0; i < depth; ++i)
            patterns[transpose_a ? i * rows + row : row * depth + i] =
                i == d ? static_cast<uint16_t>(row) : uint16_t{0};
        for (int64_t i = 0; i < depth; ++i) b.set(i, i == d ? 1.0 : 0.0);
        Values c({rows, 1});
        launch_on(1, MatMul{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = transpose_a});
        for (int64_t row = 0; row < rows; ++row) {
          double value = a[transpose_a ? d * rows + row : row * depth + d];
          if (dtype == DType::bf16 && std::fabs(value) < 0x1p-126) value = 0;
          ASSERT_TRUE(c[row] == value || (std::isnan(c[row]) && std::isnan(value))) << dtype << " " << row;
        }
      }
    }
}

TEST(SixteenBits, ConversionTakesEveryPatternThereAndBack) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Values x({0x10000}, dtype), wide({0x10000}), back({0x10000}, dtype);
    auto* patterns = static_cast<uint16_t*>(x.view().data);
    for (uint32_t i = 0; i < 0x10000; ++i) patterns[i] = static_cast<uint16_t>(i);
    launch_on(2, Convert{.x = x.view(), .y = wide.view()});
    launch_on(2, Convert{.x = wide.view(), .y = back.view()});
    const auto* again = static_cast<const uint16_t*>(back.view().data);
    for (int64_t i = 0; i < x.size(); ++i) {
      if (!std::isnan(x[i])) {
        ASSERT_EQ(again[i], patterns[i]);
        ASSERT_EQ(wide[i], x[i]);
      } else {
        ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(back[i])) << i;
      }
    }
  }
}

TEST(SixteenBits, AttentionIsOfFp32) {
  struct Heads {
    int64_t batch, time;
    AttentionHeads heads;
    int64_t size;
    double dropout = 0;
  };
  for (const Heads& c : {Heads{1, 1, 1, 8},
                         {2, 7, 3, 5, 0.5},
                         {1, 33, 2, 32},
                         {2, 37, 3, 80, 0.1},
                         {1, 300, 1, 13, 0.2},
                         {2, 37, {4, 2}, 24, 0.1}})
    expect_rounded_once([&](const Numbers& in, int threads) {
      const Shape shape{c.batch, c.time, c.heads.queries * c.size};
      const Shape packed = shape.with_last(c.heads.packed() * c.size);
      const Shape statistics{c.batch, c.heads.queries, c.time};
      Values qkv = in.uniform(packed, 1, -1.0, 1.0), dy = in.uniform(shape, 2);
      Values y = in.result(shape), dqkv = in.result(packed), sums(statistics);
      CausalAttentionForward forward{.qkv = unpack_heads(qkv.view(), c.heads),
                                     .y = y.view(),
                                     .log_sum_exp = sums.view(),
                                     .heads = c.heads,
                                     .dropout = c.dropout,
                                     .key = {.seed = 3, .step = 5, .sample = 7, .site = 2}};
      launch_on(threads, forward);
      const Values all = y;
      y = in.rounded(y);
      launch_on(threads, CausalAttentionBackward{.qkv = forward.qkv,
                                                 .y = y.view(),
                                                 .log_sum_exp = sums.view(),
                                                 .dy = dy.view(),
                                                 .dqkv = unpack_heads(dqkv.view(), c.heads),
                                                 .heads = c.heads,
                                                 .dropout = c.dropout,
                                                 .key = forward.key});
      Values last = in.result(shape), unused(statistics);
      forward.first_query = c.time / 2;
      forward.y = last.view(), forward.log_sum_exp = unused.view();
      launch_on(threads, forward);
      return Outputs{all, sums, dqkv, last};
    });
}

TEST(SixteenBits, LayerNormIsOfTheRoundedSum) {
  for (const int64_t columns : {1, 9, 97, 700})
    expect_rounded_once([&](const Numbers& in, int threads) {
      const Shape shape{5, 19, columns};
      Values x = in.uniform(shape, 1), branch = in.uniform(shape, 2), weight = in.uniform({columns}, 3),
             bias = in.uniform({columns}, 4), y = in.result(shape), mean({95}), rstd({95});
      LayerNormForward forward{.x = x.view(),
                               .weight = weight.view(),
                               .bias = bias.view(),
                               .y = y.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view()};
      if (in.is_reference) {
        launch_on(1, Add{.a = x.view(), .b = branch.view(), .y = x.view()});
        x = in.rounded(x);
        forward.x = x.view();
      } else {
        forward.residual = branch.view();
        forward.sum = x.view();
      }
      launch_on(threads, forward);
      Outputs outputs{x, y, mean, rstd};
      forward.x = x.view(), forward.residual = {}, forward.sum = {}, forward.bias = {};
      launch_on(threads, forward);
      outputs.push_back(y);
      Values dy = in.uniform(shape, 5), carried = in.uniform(shape, 6), dx = in.result(shape);
      Values dweight({columns}), dbias({columns});
      LayerNormBackward backward{.x = x.view(),
                                 .weight = weight.view(),
                                 .mean = mean.view(),
                                 .rstd = rstd.view(),
                                 .dy = dy.view(),
                                 .dx = dx.view(),
                                 .dweight = dweight.view(),
                                 .dbias = dbias.view()};
      launch_on(threads, backward);
      backward.carried = backward.dx = carried.view();
      launch_on(threads, backward);
      for (const Values& result : {dx, carried, dweight, dbias}) outputs.push_back(result);
      return outputs;
    });
}

TEST(SixteenBits, CrossEntropyIsOfFp32AlsoInPlace) {
  for (const int64_t classes : {1, 9, 131, 5000})
    expect_rounded_once([&](const Numbers& in, int threads) {
      Values logits = in.uniform({4, 10, classes}, 1, -9.0, 9.0), dlogits = in.result(logits.shape());
      Values losses({40}), without({40}), scale = Values::uniform({1}, DType::f32, 2, 100.0, 200.0);
      Values targets({40}, DType::i32);
      for (int64_t i = 0; i < 40; ++i) targets.set(i, i % 7 == 3 ? -1 : static_cast<double>(i * i % classes));
      CrossEntropy kernel{.logits = logits.view(),
                          .targets = targets.view(),
                          .losses = without.view(),
                          .scale = scale.view(),
                          .gradient_scale = 0.3};
      launch_on(threads, kernel);
      kernel.losses = losses.view(), kernel.dlogits = dlogits.view();
      launch_on(threads, kernel);
      EXPECT_EQ(losses, without);
      kernel.dlogits = logits.view();
      launch_on(threads, kernel);
      EXPECT_EQ(logits, dlogits);
      return Outputs{losses, dlogits};
    });
}

TEST(SixteenBits, RowsAndSumsAreOfFp32) {
  for (const Shape& shape : {Shape{3, 1}, Shape{5, 4, 7}, Shape{2, 1100, 70}, Shape{3, 9000}})
    expect_rounded_once([&](const Numbers& in, int threads) {
      Values x = in.uniform(shape, 1, -6.0, 6.0), dy = in.uniform(shape, 2), y = in.result(shape);
      Values sum = in.result({}), along({shape[-1]}), columns({shape[-1]}), last({shape.rows()});
      launch_on(threads, Sum{.x = x.view(), .y = sum.view()});
      launch_on(threads, ColumnSum{.x = x.view(), .y = columns.view()});
      launch_on(threads,
                DimensionSum{.x = x.view(), .y = along.view(), .count = shape.rows(), .inner = shape[-1]});
      launch_on(threads, DimensionSum{.x = x.view(), .y = last.view(), .count = shape[-1]});
      launch_on(threads, SoftmaxForward{.x = x.view(), .y = y.view()});
      Outputs outputs{sum, columns, along, last, y};
      launch_on(threads, SoftmaxForward{.x = x.view(), .y = x.view()});
      EXPECT_EQ(x, y);
      y = in.rounded(y);
      launch_on(threads, SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = dy.view()});
      outputs.push_back(dy);
      return outputs;
    });
}

TEST(SixteenBits, WhatComesBeforeTheBlocksIsOfFp32) {
  expect_rounded_once([](const Numbers& in, int threads) {
    Values x = in.uniform({5, 70, 65}, 1), table = in.uniform({80, 65}, 2), y = in.result(x.shape());
    Values dpositions({80, 65}), drows({80, 65}), masked = in.result(x.shape()), ids({5, 70}, DType::i32);
    for (int64_t i = 0; i < ids.size(); ++i) ids.set(i, static_cast<double>(i * i % 80));
    launch_on(threads, AddPositions{.x = x.view(), .table = table.view(), .y = y.view()});
    launch_on(threads, AddPositionsBackward{.dy = x.view(), .dtable = dpositions.view()});
    launch_on(threads, EmbeddingBackward{.ids = ids.view(), .dy = x.view(), .dtable = drows.view()});
    launch_on(threads, Dropout{.x = x.view(),
                               .y = masked.view(),
                               .probability = 0.3,
                               .key = {.seed = 3, .step = 5, .sample = 7, .site = 2}});
    Outputs outputs{y, dpositions, drows, masked};
    launch_on(threads, EmbeddingForward{.ids = ids.view(), .table = table.view(), .y = y.view()});
    outputs.push_back(y);
    return outputs;
  });
}

TEST(SixteenBits, ElementsAreComputedInFp32) {
  expect_rounded_once([](const Numbers& in, int threads) {
    const Shape shape{3, 70, 191};
    Values a = in.uniform(shape, 1, 0.1, 9.0), b = in.uniform(shape, 2), column = in.uniform({70, 1}, 3);
    Values y = in.result(shape), factor = Values::uniform({1}, DType::f32, 4);
    Outputs outputs;
    const auto run = [&](const auto& kernel) {
      launch_on(threads, kernel);
      outputs.push_back(y);
    };
    for (Values* other : {&b, &column}) {
      run(Add{a.view(), other->view(), y.view()});
      run(Subtract{a.view(), other->view(), y.view()});
      run(Multiply{a.view(), other->view(), y.view()});
      run(Divide{a.view(), other->view(), y.view()});
    }
    run(Scale{.x = a.view(), .y = y.view(), .factor = -1.7});
    run(ScaleBy{.x = a.view(), .factor = factor.view(), .y = y.view()});
    run(ReluForward{.x = b.view(), .y = y.view()});
    run(ReluBackward{.x = b.view(), .dy = a.view(), .dx = y.view()});
    run(TanhForward{.x = a.view(), .y = y.view()});
    run(TanhBackward{.y = b.view(), .dy = a.view(), .dx = y.view()});
    run(Exp{.x = a.view(), .y = y.view()});
    run(Log{.x = a.view(), .y = y.view()});
    for (const Gelu form : {Gelu::tanh, Gelu::erf}) {
      run(GeluForward{.x = b.view(), .y = y.view(), .form = form});
      run(GeluBackward{.x = b.view(), .dy = a.view(), .dx = y.view(), .form = form});
    }
    return outputs;
  });
}

}  // namespace
}  // namespace lockstep::testing
