// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul.h"

#include <array>

#include "kernels/product_operands.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/matmul_plans.h"

namespace lockstep::testing {
namespace {

// Whole tiles, partial tiles, single rows and columns, empty sums, sums of several blocks and several groups
// of depth. Some products have few rows and more strips of columns than are summed at once or shared evenly.
const std::vector<ProductCase> product_cases = {
    {1, 1, 1},      {1, 7, 3},      {3, 1, 5},      {12, 32, 32},  {13, 33, 31},  {24, 64, 128},
    {5, 0, 9},      {0, 4, 3},      {4, 3, 0},      {65, 20, 1},   {2, 256, 17},  {31, 257, 33},
    {17, 513, 47},  {49, 300, 65},  {192, 128, 96}, {64, 70, 130}, {7, 1000, 66}, {100, 255, 129},
    {20, 600, 400}, {1, 530, 1300}, {45, 800, 35}};

template <class Body>
void for_each_case(Body&& body) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const ProductCase& c : product_cases)
      for_each_order(c, [&, dtype = dtype](bool transpose_a, bool transpose_b) {
        SCOPED_TRACE(concat(dtype));
        Operands operands(c, dtype, transpose_a, transpose_b);
        body(operands);
      });
}

TEST(MatMul, EveryElementIsItsChainOfFusedMultiplyAdds) {
  for_each_case([](Operands& o) {
    launch_on(1, o.kernel);
    with_compute_type(o.kernel.c.dtype, [&]<class T>() {
      for (int64_t i = 0; i < o.c.size(); ++i)
        ASSERT_EQ(o.c[i], chained<T>(o, i / o.kernel.n(), i % o.kernel.n())) << "element " << i;
    });
  });
}

TEST(MatMul, MatchesDoublePrecisionWithBias) {
  for_each_case([](Operands& o) {
    o.kernel.bias = o.bias.view();
    launch_on(1, o.kernel);
    const int64_t k = o.kernel.k();
    for (int64_t i = 0; i < o.c.size(); ++i) {
      const int64_t row = i / o.kernel.n(), column = i % o.kernel.n();
      double sum = o.bias[column], magnitude = std::fabs(sum);
      for (int64_t d = 0; d < k; ++d) {
        sum += o.left(row, d) * o.right(d, column);
        magnitude += std::fabs(o.left(row, d) * o.right(d, column));
      }
      // Each term rounds once, and the bias rounds once. In f64 the reference rounds as often again. Each
      // rounding is at most half an epsilon of a partial sum.
      const double terms = static_cast<double>(k + 1);
      ASSERT_NEAR(o.c[i], sum, terms * epsilon_of(o.kernel.c.dtype) * magnitude) << "element " << i;
    }
  });
}

TEST(MatMul, ThreadsDoNotShowInTheBits) {
  for_each_case([](Operands& o) {
    o.kernel.bias = o.bias.view();
    o.kernel.activation = Activation::gelu_tanh;
    launch_on(1, o.kernel);
    const Values alone = o.c;
    for (const int threads : {2, 3}) {
      o.c = Values(o.c.shape(), o.kernel.c.dtype);
      o.kernel.c = o.c.view();
      launch_on(threads, o.kernel);
      ASSERT_EQ(o.c, alone) << threads << " threads";
    }
  });
}

TEST(MatMul, RowsAndColumnsDoNotKnowTheirNeighbours) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const ProductCase whole{61, 300, 95};
    Operands o(whole, dtype, false, true);
    o.kernel.bias = o.bias.view();
    o.kernel.activation = Activation::gelu_erf;
    launch_on(1, o.kernel);
    for (const auto [row, rows, column, columns] : {std::array<int64_t, 4>{0, 1, 0, 1},
                                                    {60, 1, 94, 1},
                                                    {5, 30, 7, 50},
                                                    {13, 48, 1, 94},
                                                    {1, 60, 33, 16}}) {
      const auto from = [&](Values& values, int64_t first, int64_t count, int64_t stride) {
        View view = values.view();
        view.data = static_cast<std::byte*>(view.data) + first * stride * bytes(dtype);
        view.shape = values.shape().rank() == 1 ? Shape{count} : Shape{count, stride};
        return view;
      };
      Values part({rows, columns}, dtype);
      MatMul kernel = o.kernel;
      kernel.a = from(o.a, row, rows, whole.k);
      kernel.b = from(o.b, column, columns, whole.k);
      kernel.bias = from(o.bias, column, columns, 1);
      kernel.c = part.view();
      launch_on(1, kernel);
      for (int64_t i = 0; i < part.size(); ++i)
        ASSERT_EQ(part[i], o.c[(row + i / columns) * whole.n + column + i % columns]) << "element " << i;
    }
  }
}

/// Returns the product of the first `rows` rows of a.
MatMul of_first_rows(MatMul whole, int64_t rows, Values& c, Values& pre_activation) {
  whole.a.shape = {rows, whole.a.shape[1]};
  whole.c = c.view();
  if (whole.pre_activation) whole.pre_activation = pre_activation.view();
  if (whole.residual) whole.residual.shape = c.shape();
  return whole;
}

// Products of few rows use other code than products of many rows. They read the strips in place.
TEST(MatMul, FewRowsHaveTheBitsOfMany) {
  for (const DType dtype : float_types)
    for (const bool transpose_b : {false, true})
      for (const ProductCase& size : {ProductCase{61, 300, 259}, {61, 64, 128}, {61, 1, 130}, {61, 600, 65}})
        for (const int epilogue : {0, 1, 2}) {
          Operands many(size, dtype, false, transpose_b);
          Values residual = Values::uniform(many.c.shape(), dtype, 6);
          many.kernel.bias = many.bias.view();
          if (epilogue == 0) many.kernel.scale = 0.3;
          if (epilogue == 1) many.kernel.residual = residual.view();
          if (epilogue == 2) many.kernel.activation = Activation::gelu_tanh;
          if (epilogue == 2) many.kernel.pre_activation = many.pre_activation.view();
          launch_on(1, many.kernel);
          for (const int64_t rows : {1, 2, 3, 4, 7, 32}) {
            SCOPED_TRACE(concat(dtype, " ", rows, " of ", size.m, " x ", size.k, " x ", size.n, " b^T ",
                                transpose_b, " epilogue ", epilogue));
            Values c({rows, size.n}, dtype), z({rows, size.n}, dtype);
            launch_on(2, of_first_rows(many.kernel, rows, c, z));
            for (int64_t i = 0; i < c.size(); ++i) {
              ASSERT_EQ(c[i], many.c[i]) << i;
              if (epilogue != 2) continue;
              ASSERT_EQ(z[i], many.pre_activation[i]) << i;
            }
          }
        }
}

TEST(MatMul, ActivationsAreThoseOfTheGeluKernel) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [activation, form] :
         {std::pair{Activation::gelu_tanh, Gelu::tanh}, {Activation::gelu_erf, Gelu::erf}}) {
      Operands o({45, 40, 77}, dtype, false, true);
      o.kernel.bias = o.bias.view();
      launch_on(1, o.kernel);
      const Values plain = o.c;
      o.kernel.activation = activation;
      o.kernel.pre_activation = o.pre_activation.view();
      launch_on(1, o.kernel);
      EXPECT_EQ(o.pre_activation, plain);
      Values expected(o.c.shape(), dtype);
      launch_on(1, GeluForward{.x = o.pre_activation.view(), .y = expected.view(), .form = form});
      EXPECT_EQ(o.c, expected);
    }
}

/// Launches the kernel with three threads and with one. Asserts that the bits are the same.
void launch_twice(const MatMul& kernel, const std::vector<Values*>& outputs) {
  launch_on(3, kernel);
  std::vector<Values> before;
  for (const Values* output : outputs) before.push_back(*output);
  launch_on(1, kernel);
  for (size_t i = 0; i < outputs.size(); ++i) ASSERT_EQ(*outputs[i], before[i]) << "output " << i;
}

TEST(MatMul, AResidualIsAddedAfterTheBias) {
  for_each_case([](Operands& o) {
    Values residual = Values::uniform(o.c.shape(), o.kernel.c.dtype, 6);
    o.kernel.bias = o.bias.view();
    launch_on(1, o.kernel);
    Values expected = o.c;
    for (int64_t i = 0; i < expected.size(); ++i) expected.set(i, o.c[i] + residual[i]);
    o.kernel.residual = residual.view();
    launch_twice(o.kernel, {&o.c});
    ASSERT_EQ(o.c, expected);
    o.kernel.c = residual.view();
    launch_on(2, o.kernel);
    ASSERT_EQ(residual, expected) << "in place";
  });
}

// A power of two commutes with every rounding.
TEST(MatMul, TheScaleIsOfTheSumAlone) {
  for_each_case([](Operands& o) {
    Values quarter = o.a, expected = o.c;
    for (int64_t i = 0; i < quarter.size(); ++i) quarter.set(i, o.a[i] / 4);
    o.kernel.bias = o.bias.view();
    MatMul other = o.kernel;
    other.a.data = quarter.view().data;
    other.c = expected.view();
    o.kernel.scale = 0.25;
    launch_on(2, o.kernel);
    launch_on(2, other);
    ASSERT_EQ(o.c, expected);
  });
}

TEST(MatMul, BackwardActivationsAreThoseOfTheGeluKernel) {
  for_each_case([](Operands& o) {
    const DType dtype = o.kernel.c.dtype;
    launch_on(1, o.kernel);
    Values plain = o.c;
    Values z = Values::uniform(o.c.shape(), dtype, 7, -4.0, 4.0);
    const Values before = z;
    for (const auto& [activation, form] : {std::pair{Activation::gelu_tanh_backward, Gelu::tanh},
                                           {Activation::gelu_erf_backward, Gelu::erf}}) {
      Values expected(o.c.shape(), dtype);
      o.kernel.activation = activation;
      o.kernel.pre_activation = z.view();
      launch_twice(o.kernel, {&o.c});
      launch_on(1, GeluBackward{.x = z.view(), .dy = plain.view(), .dx = expected.view(), .form = form});
      ASSERT_EQ(o.c, expected);
      ASSERT_EQ(z, before) << "an input was written";
    }
  });
}

TEST(MatMul, ColumnSumsAreThoseOfTheRightOperand) {
  for_each_case([](Operands& o) {
    if (o.kernel.transpose_b) return;
    launch_on(1, o.kernel);
    const Values product = o.c;
    Values sums({o.kernel.n()}, o.kernel.c.dtype), expected({o.kernel.n()}, o.kernel.c.dtype);
    o.kernel.column_sum = sums.view();
    launch_twice(o.kernel, {&o.c, &sums});
    launch_on(1, ColumnSum{.x = o.b.view(), .y = expected.view()});
    ASSERT_EQ(o.c, product);
    ASSERT_EQ(sums, expected);
  });
}

TEST(MatMul, LeadingDimensionsFoldIntoRows) {
  Operands o({6, 5, 4}, DType::f32, false, false);
  launch_on(1, o.kernel);
  const Values flat = o.c;
  o.kernel.a.shape = {2, 3, 5};
  o.kernel.c.shape = {2, 3, 4};
  launch_on(1, o.kernel);
  EXPECT_EQ(o.c, flat);
}

TEST(MatMul, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    Operands o({6, 5, 4}, DType::f32, false, false);
    change(o);
    EXPECT_THROW(o.kernel.check(), Error);
  };
  refused([](Operands& o) { o.kernel.a.shape = {6, 4}; });
  refused([](Operands& o) { o.kernel.a.shape = {}; });
  refused([](Operands& o) { o.kernel.transpose_b = true; });
  refused([](Operands& o) { o.kernel.c.shape = {6, 5}; });
  refused([](Operands& o) { o.kernel.b.dtype = DType::f64; });
  refused([](Operands& o) {
    o.kernel.bias = o.bias.view();
    o.kernel.bias.shape = {5};
  });
  refused([](Operands& o) {
    o.kernel.pre_activation = o.pre_activation.view();
    o.kernel.pre_activation.shape = {4, 6};
  });
  refused([](Operands& o) { o.kernel.a.dtype = o.kernel.b.dtype = DType::i32; });
  refused([](Operands& o) { o.kernel.c.dtype = DType::bf16; });
  refused([](Operands& o) { o.kernel.activation = Activation::gelu_tanh_backward; });
  refused([](Operands& o) {
    o.kernel.residual = o.pre_activation.view();
    o.kernel.activation = Activation::gelu_tanh;
  });
  refused([](Operands& o) {
    o.kernel.residual = o.pre_activation.view();
    o.kernel.residual.dtype = DType::f64;
  });
  refused([](Operands& o) {
    o.kernel.pre_activation = o.pre_activation.view();
    o.kernel.activation = Activation::gelu_erf_backward;
    o.kernel.bias = o.bias.view();
  });
  refused([](Operands& o) {
    o.kernel.column_sum = o.bias.view();
    o.kernel.column_sum.shape = {6};
  });
  refused([](Operands& o) {
    o = Operands({6, 5, 4}, DType::f32, false, true);
    o.kernel.column_sum = o.bias.view();
  });
}

TEST(MatMul, NeedsNoPlansOnTheCpu) {
  Operands o({6, 5, 4}, DType::f32, false, false);
  set_matmul_tuning(true);
  launch_on(1, o.kernel);
  set_matmul_tuning(false);
  EXPECT_EQ(export_matmul_plans(), "");
  EXPECT_NO_THROW(import_matmul_plans(""));
#if !defined(LOCKSTEP_CUDA)
  EXPECT_THROW(import_matmul_plans("plans for a GPU\n"), UserError);
#endif
}

TEST(ColumnSum, MatchesDoublePrecisionOnAnyThreads) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape :
         {Shape{1, 1}, Shape{0, 5}, Shape{3, 0}, Shape{64, 64}, Shape{65, 129}, Shape{5, 40, 70}}) {
      SCOPED_TRACE(concat(dtype, " ", shape));
      const int64_t columns = shape[-1], rows = columns == 0 ? 0 : shape.elements() / columns;
      Values x = Values::uniform(shape, dtype, 4);
      Values y({columns}, dtype);
      launch_on(1, ColumnSum{.x = x.view(), .y = y.view()});
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < rows; ++i) {
          sum += x[i * columns + j];
          magnitude += std::fabs(x[i * columns + j]);
        }
        ASSERT_NEAR(y[j], sum, static_cast<double>(rows) * epsilon_of(dtype) * magnitude) << "column " << j;
      }
      for (const int threads : {2, 3}) {
        Values again({columns}, dtype);
        launch_on(threads, ColumnSum{.x = x.view(), .y = again.view()});
        EXPECT_EQ(again, y) << threads << " threads";
      }
    }
}

TEST(ColumnSum, RowsAreAddedInBlocksOf64) {
  Values x = Values::uniform({200, 3}, DType::f32, 5);
  Values y({3});
  launch_on(1, ColumnSum{.x = x.view(), .y = y.view()});
  for (int64_t j = 0; j < 3; ++j) {
    float total = 0;
    for (int64_t begin = 0; begin < 200; begin += 64) {
      float block = 0;
      for (int64_t i = begin; i < std::min<int64_t>(begin + 64, 200); ++i)
        block += static_cast<float>(x[i * 3 + j]);
      total += block;
    }
    EXPECT_EQ(y[j], total);
  }
}

}  // namespace
}  // namespace lockstep::testing
