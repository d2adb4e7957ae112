// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul.h"

#include <array>
#include <thread>

#include "lockstep/core/graph.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/sum.h"
#include "support/cuda.h"

namespace lockstep {
namespace {

struct Dtypes {
  DType operands, c;
};
constexpr std::array<Dtypes, 5> all_dtypes = {{{DType::f32, DType::f32},
                                               {DType::bf16, DType::bf16},
                                               {DType::bf16, DType::f32},
                                               {DType::f16, DType::f16},
                                               {DType::f16, DType::f32}}};

struct Size {
  int64_t m, n, k;
};
// Single rows, columns and terms. Some rows are a multiple of 16 bytes and some are not.
constexpr std::array<Size, 5> sizes = {{{1, 1, 1}, {3, 65, 7}, {33, 65, 63}, {17, 8, 1}, {40, 72, 96}}};

/// Returns half the distance from 1 to the next number: the relative error of one rounding.
double rounding_of(DType dtype) {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
}
/// Returns the error that rounding adds to numbers too small for the dtype's full precision.
double smallest_of(DType dtype) { return dtype == DType::f16 ? 0x1p-25 : 1e-37; }

double gelu(double x, bool erf) {
  if (erf) return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x, bool erf) {
  if (erf) return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
  const double t = std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}
// The slopes of both GELUs stay below this.
constexpr double largest_slope = 1.13;
// The error of the exponentials and reciprocals of a GELU in fp32, relative to its argument or its factor. It
// is a few units in the last place.
constexpr double function_error = 16 * 0x1p-24;

/// A product whose operands have every part that a test may request.
struct Problem {
  Problem(const Size& with_size, const Dtypes& with_dtypes, bool transpose_a, bool transpose_b)
      : size(with_size),
        dtypes(with_dtypes),
        a_values(normal_values(size.m * size.k, 1, dtypes.operands)),
        b_values(normal_values(size.k * size.n, 2, dtypes.operands)),
        bias_values(normal_values(size.n, 3, dtypes.operands)),
        like_c(normal_values(size.m * size.n, 4, dtypes.c)),
        a(a_values, transpose_a ? Shape{size.k, size.m} : Shape{size.m, size.k}, dtypes.operands),
        b(b_values, transpose_b ? Shape{size.n, size.k} : Shape{size.k, size.n}, dtypes.operands),
        bias(bias_values, {size.n}, dtypes.operands),
        residual(like_c, {size.m, size.n}, dtypes.c),
        c({size.m, size.n}, dtypes.c),
        pre_activation({size.m, size.n}, dtypes.c),
        column_sum({size.n}, DType::f32),
        kernel{.a = a.view(),
               .b = b.view(),
               .c = c.view(),
               .transpose_a = transpose_a,
               .transpose_b = transpose_b} {}

  double left(int64_t row, int64_t d) const {
    return a_values[static_cast<size_t>(kernel.transpose_a ? d * size.m + row : row * size.k + d)];
  }
  double right(int64_t d, int64_t column) const {
    return b_values[static_cast<size_t>(kernel.transpose_b ? column * size.k + d : d * size.n + column)];
  }

  Size size;
  Dtypes dtypes;
  std::vector<double> a_values, b_values, bias_values, like_c;
  DeviceArray a, b, bias, residual, c, pre_activation, column_sum;
  MatMul kernel;
};

/// The sum with the bias, and a bound on fp32's error. The sum rounds once for each product, term and
/// addition, and for the scale.
struct Sum {
  double value = 0, error = 0;
  double product = 0;  ///< without the bias
};
Sum sum_of(const Problem& p, int64_t row, int64_t column) {
  Sum sum;
  double magnitude = 0;
  const auto add = [&](double term) {
    sum.value += term;
    magnitude += std::fabs(term);
  };
  for (int64_t d = 0; d < p.size.k; ++d) add(p.kernel.scale * p.left(row, d) * p.right(d, column));
  if (p.kernel.residual) add(p.like_c[static_cast<size_t>(row * p.size.n + column)]);
  sum.product = sum.value;
  if (p.kernel.bias) add(p.bias_values[static_cast<size_t>(column)]);
  sum.error = static_cast<double>(2 * p.size.k + 3) * 0x1p-24 * magnitude;
  return sum;
}

/// Compares the product with float64. A product that one of our own kernels finishes is first rounded to c's
/// dtype.
void expect_product(const Problem& p, const std::vector<double>& c) {
  const double rounding = rounding_of(p.dtypes.c), smallest = 4 * smallest_of(p.dtypes.c);
  const Activation activation = p.kernel.activation;
  const bool erf = activation == Activation::gelu_erf || activation == Activation::gelu_erf_backward;
  const std::vector<double> stored =
      p.kernel.pre_activation ? p.pre_activation.values() : std::vector<double>();
  for (int64_t i = 0; i < p.size.m * p.size.n; ++i) {
    auto [value, error, product] = sum_of(p, i / p.size.n, i % p.size.n);
    error += rounding * (std::fabs(value) + std::fabs(product)) + smallest;
    const auto at = static_cast<size_t>(i);
    if (is_backward(activation)) {
      const double slope = gelu_slope(p.like_c[at], erf);
      error = largest_slope * error + function_error * std::fabs(value);
      value *= slope;
      error += rounding * std::fabs(value) + smallest;
    } else if (p.kernel.pre_activation) {
      ASSERT_LE(std::fabs(stored[at] - value), error) << "before, element " << i;
    }
    if (activation == Activation::gelu_tanh || activation == Activation::gelu_erf) {
      error = largest_slope * error + function_error * std::fabs(value);
      value = gelu(value, erf);
      error += rounding * std::fabs(value) + smallest;
    }
    ASSERT_LE(std::fabs(c[at] - value), error) << "element " << i << " is " << c[at] << ", not " << value;
  }
}

void expect_sums(const Problem& p) {
  const std::vector<double> columns = p.column_sum.values();
  for (int64_t j = 0; p.kernel.column_sum && j < p.size.n; ++j) {
    double sum = 0, magnitude = 0;
    for (int64_t d = 0; d < p.size.k; ++d) {
      sum += p.right(d, j);
      magnitude += std::fabs(p.right(d, j));
    }
    const double error = static_cast<double>(p.size.k) * 0x1p-24 * magnitude;
    ASSERT_LE(std::fabs(columns[static_cast<size_t>(j)] - sum), error) << "column " << j;
  }
}

/// Runs every problem as `configure` changes it. Compares it with float64 and the bits of three schedules
/// with each other.
void check_all(const std::function<void(Problem&)>& configure) {
  for (const Dtypes& dtypes : all_dtypes)
    for (const Size& size : sizes)
      for (const auto [transpose_a, transpose_b] :
           {std::array{false, false}, {false, true}, {true, false}, {true, true}}) {
        SCOPED_TRACE(concat(dtypes.operands, " to ", dtypes.c, " ", size.m, " x ", size.n, " x ", size.k,
                            transpose_a ? " a^T" : "", transpose_b ? " b^T" : ""));
        Problem p(size, dtypes, transpose_a, transpose_b);
        configure(p);
        std::vector<std::vector<uint8_t>> bits;
        for_each_schedule([&] {
          launch(gpu_stream(), p.kernel);
          std::vector<uint8_t> all = p.c.bits();
          for (const DeviceArray* more : {&p.pre_activation, &p.column_sum})
            for (const uint8_t byte : more->bits()) all.push_back(byte);
          bits.push_back(all);
        });
        ASSERT_EQ(bits[1], bits[0]);
        ASSERT_EQ(bits[2], bits[0]);
        expect_product(p, p.c.values());
        expect_sums(p);
        if (::testing::Test::HasFatalFailure()) return;
      }
}

TEST(MatMul, ProductsAreThoseOfFloat64) {
  LOCKSTEP_NEEDS_GPU();
  check_all([](Problem&) {});
}

TEST(MatMul, BiasesAndResidualsAreAdded) {
  LOCKSTEP_NEEDS_GPU();
  check_all([](Problem& p) { p.kernel.bias = p.bias.view(); });
  check_all([](Problem& p) { p.kernel.residual = p.residual.view(); });
  check_all([](Problem& p) { p.kernel.pre_activation = p.pre_activation.view(); });
  check_all([](Problem& p) {
    p.kernel.bias = p.bias.view();
    p.kernel.residual = p.residual.view();
  });
}

TEST(MatMul, TheScaleIsOfTheSumAlone) {
  LOCKSTEP_NEEDS_GPU();
  check_all([](Problem& p) {
    p.kernel.scale = 0.75;
    p.kernel.residual = p.residual.view();
  });
}

TEST(MatMul, GelusAreAppliedToTheSum) {
  LOCKSTEP_NEEDS_GPU();
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf})
    for (const bool keeps : {false, true})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(concat(activation == Activation::gelu_erf ? "erf" : "tanh", keeps ? " keeps" : "",
                            adds ? " bias" : ""));
        check_all([&](Problem& p) {
          p.kernel.activation = activation;
          if (keeps) p.kernel.pre_activation = p.pre_activation.view();
          if (adds) p.kernel.bias = p.bias.view();
        });
      }
}

TEST(MatMul, GelusGradientsAreMultipliedIn) {
  LOCKSTEP_NEEDS_GPU();
  for (const Activation activation : {Activation::gelu_tanh_backward, Activation::gelu_erf_backward})
    check_all([&](Problem& p) {
      p.kernel.activation = activation;
      p.kernel.pre_activation = p.residual.view();
    });
}

TEST(MatMul, SumsOfColumnsComeAlong) {
  LOCKSTEP_NEEDS_GPU();
  const auto check_sums = [](const std::function<void(Problem&)>& configure) {
    check_all([&](Problem& p) {
      if (!p.kernel.transpose_b) p.kernel.column_sum = p.column_sum.view();
      configure(p);
    });
  };
  check_sums([](Problem&) {});
  check_sums([](Problem& p) { p.kernel.residual = p.residual.view(); });
  check_sums([](Problem& p) { p.kernel.bias = p.bias.view(); });
}

TEST(MatMul, AccumulatesInPlace) {
  LOCKSTEP_NEEDS_GPU();
  for (const Dtypes& dtypes : all_dtypes) {
    Problem p({40, 72, 96}, dtypes, true, false);
    p.kernel.residual = p.residual.view();
    launch(gpu_stream(), p.kernel);
    p.kernel.c = p.residual.view();
    launch(gpu_stream(), p.kernel);
    EXPECT_EQ(p.residual.bits(), p.c.bits());
  }
}

TEST(MatMul, EmptyOperands) {
  LOCKSTEP_NEEDS_GPU();
  for (const Dtypes& dtypes : all_dtypes)
    for (const Size& size : {Size{5, 9, 0}, Size{0, 8, 3}, Size{8, 0, 3}}) {
      SCOPED_TRACE(concat(dtypes.operands, " ", size.m, " x ", size.n, " x ", size.k));
      Problem p(size, dtypes, true, false);
      p.kernel.bias = p.bias.view();
      p.kernel.column_sum = p.column_sum.view();
      launch(gpu_stream(), p.kernel);
      expect_product(p, p.c.values());
      expect_sums(p);
      p.kernel.residual = p.residual.view();
      launch(gpu_stream(), p.kernel);
      expect_product(p, p.c.values());
    }
}

/// Returns a view of the same values in its own memory. The view begins `elements` further.
View shifted(const DeviceArray& array, int64_t elements, std::shared_ptr<std::byte>& memory) {
  View view = array.view();
  const int64_t offset = elements * bytes(view.dtype);
  memory = allocate(view.bytes() + offset, gpu_stream());
  copy_bytes(memory.get() + offset, gpu_stream(), view.data, gpu_stream(), view.bytes());
  view.data = memory.get() + offset;
  return view;
}

TEST(MatMul, AddressesDoNotShowInTheBits) {
  LOCKSTEP_NEEDS_GPU();
  for (const Dtypes& dtypes : all_dtypes)
    for (const Activation activation :
         {Activation::none, Activation::gelu_tanh, Activation::gelu_erf, Activation::gelu_tanh_backward}) {
      Problem p({40, 72, 96}, dtypes, true, false);
      p.kernel.activation = activation;
      p.kernel.column_sum = p.column_sum.view();
      if (!is_backward(activation)) p.kernel.bias = p.bias.view();
      if (activation != Activation::none)
        p.kernel.pre_activation = is_backward(activation) ? p.residual.view() : p.pre_activation.view();
      launch(gpu_stream(), p.kernel);
      MatMul moved = p.kernel;
      std::array<std::shared_ptr<std::byte>, 6> memory;
      moved.a = shifted(p.a, 1, memory[0]);
      moved.b = shifted(p.b, 3, memory[1]);
      if (moved.bias) moved.bias = shifted(p.bias, 1, memory[2]);
      moved.c = shifted(p.c, 1, memory[3]);
      if (moved.pre_activation)
        moved.pre_activation = shifted(is_backward(activation) ? p.residual : p.pre_activation, 1, memory[4]);
      moved.column_sum = shifted(p.column_sum, 1, memory[5]);
      const DeviceArray poison(p.kernel.c.shape, dtypes.c);
      copy_bytes(moved.c.data, gpu_stream(), poison.view().data, gpu_stream(), moved.c.bytes());
      launch(gpu_stream(), moved);
      const auto bits = [](const View& view) {
        std::vector<uint8_t> all(static_cast<size_t>(view.bytes()));
        copy_bytes(all.data(), cpu_stream(), view.data, gpu_stream(), view.bytes());
        return all;
      };
      EXPECT_EQ(bits(moved.c), p.c.bits());
      EXPECT_EQ(bits(moved.column_sum), p.column_sum.bits());
      if (activation != Activation::none && !is_backward(activation)) {
        EXPECT_EQ(bits(moved.pre_activation), p.pre_activation.bits());
      }
    }
}

TEST(MatMul, AGraphReplaysTheSameBits) {
  LOCKSTEP_NEEDS_GPU();
  for (const Dtypes& dtypes : all_dtypes) {
    // One shape was planned before, and one is planned while it is recorded.
    for (const Size& size : {Size{40, 72, 96}, Size{24, 56, 40}}) {
      Problem p(size, dtypes, true, false);
      p.kernel.activation = Activation::gelu_erf_backward;
      p.kernel.pre_activation = p.residual.view();
      p.kernel.column_sum = p.column_sum.view();
      const Graph graph(gpu_stream(), [&] { launch(gpu_stream(), p.kernel); });
      graph.launch();
      const auto c = p.c.bits(), columns = p.column_sum.bits();
      expect_product(p, p.c.values());
      launch(gpu_stream(), p.kernel);
      EXPECT_EQ(p.c.bits(), c);
      EXPECT_EQ(p.column_sum.bits(), columns);
    }
  }
}

TEST(MatMul, ThreadsWithStreamsOfTheirOwnShareThePlans) {
  LOCKSTEP_NEEDS_GPU();
  Problem p({40, 72, 96}, {DType::bf16, DType::bf16}, false, true);
  p.kernel.bias = p.bias.view();
  launch(gpu_stream(), p.kernel);
  std::array<DeviceArray, 2> results{DeviceArray({40, 72}, DType::bf16), DeviceArray({40, 72}, DType::bf16)};
  std::vector<std::thread> threads;
  for (DeviceArray& result : results)
    threads.emplace_back([&] {
      const Stream stream = make_gpu_stream(0);
      MatMul kernel = p.kernel;
      kernel.c = result.view();
      for (int i = 0; i < 20; ++i) launch(stream, kernel);
      synchronize(stream);
    });
  for (std::thread& thread : threads) thread.join();
  for (const DeviceArray& result : results) EXPECT_EQ(result.bits(), p.c.bits());
}

TEST(MatMul, RefusesFloat64) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray a({4, 4}, DType::f64), b({4, 4}, DType::f64), c({4, 4}, DType::f64);
  EXPECT_THROW(launch(gpu_stream(), MatMul{.a = a.view(), .b = b.view(), .c = c.view()}), Error);
}

TEST(ColumnSum, MatchesFloat64InEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape : {Shape{1, 1}, Shape{7, 65}, Shape{255, 24}, Shape{256, 40}, Shape{257, 264},
                               Shape{70000, 8}, Shape{3, 5, 16}}) {
      SCOPED_TRACE(concat(dtype, " ", shape));
      const int64_t columns = shape[-1], rows = shape.elements() / columns;
      const std::vector<double> values = normal_values(shape.elements(), 5, dtype);
      const DeviceArray x(values, shape, dtype), y({columns}, DType::f32);
      std::vector<std::vector<uint8_t>> bits;
      for_each_schedule([&] {
        launch(gpu_stream(), ColumnSum{.x = x.view(), .y = y.view()});
        bits.push_back(y.bits());
      });
      EXPECT_EQ(bits[1], bits[0]);
      EXPECT_EQ(bits[2], bits[0]);
      const std::vector<double> result = y.values();
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < rows; ++i) {
          sum += values[static_cast<size_t>(i * columns + j)];
          magnitude += std::fabs(values[static_cast<size_t>(i * columns + j)]);
        }
        // A warp has at most 32 terms, a block 8 warps, and there are three rounds of blocks. Each rounds
        // once.
        ASSERT_LE(std::fabs(result[static_cast<size_t>(j)] - sum), 3 * 40 * 0x1p-24 * magnitude)
            << "column " << j;
      }
    }
}

}  // namespace
}  // namespace lockstep
