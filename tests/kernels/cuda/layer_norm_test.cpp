// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/layer_norm.h"

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {
namespace {

using Numbers = std::vector<double>;

/// Returns half the distance between 1 and the next number of the storage, plus about 64 roundings of fp32.
/// The first bounds the relative error of a rounded element. The second is for values of order one.
double tolerance(DType dtype) { return epsilon_of(dtype) / 2 + 64 * 0x1p-24; }

double rounded(double value, DType dtype) {
  return with_float_type(dtype, [&]<class T>() {
    return static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(value))));
  });
}

/// LayerNorm, or RMSNorm, whose kernels have no mean.
enum class Norm { centred, uncentred };

/// The operands of one case on the host, and the expected results in double.
struct Reference {
  int64_t rows, columns;
  DType dtype;
  Norm norm;
  Numbers x, residual, weight, bias, dy, carried;
  Numbers sum, y, mean, rstd, dx, dweight, dbias, dx_sum;

  Reference(int64_t row_count, int64_t column_count, DType type, bool fused, Norm kind = Norm::centred)
      : rows(row_count), columns(column_count), dtype(type), norm(kind) {
    const int64_t size = rows * columns;
    x = normal_values(size, 1, dtype), dy = normal_values(size, 2, dtype);
    residual = normal_values(size, 3, dtype), carried = normal_values(size, 4, dtype);
    weight = normal_values(columns, 5, dtype), bias = normal_values(columns, 6, dtype);
    sum = x;
    if (fused)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = rounded(x[i] + residual[i], dtype);
    y.resize(sum.size()), dx = carried;
    mean.resize(static_cast<size_t>(rows)), rstd = mean;
    dweight.resize(static_cast<size_t>(columns)), dbias = dweight, dx_sum = dweight;
    for (int64_t row = 0; row < rows; ++row) compute(static_cast<size_t>(row));
  }

 private:
  void compute(size_t row) {
    const auto width = static_cast<size_t>(columns);
    const size_t begin = row * width;
    const auto count = static_cast<double>(columns);
    double variance = 0, shift = 0, slope = 0;
    if (norm == Norm::centred)
      for (size_t i = 0; i < width; ++i) mean[row] += sum[begin + i] / count;
    for (size_t i = 0; i < width; ++i) variance += std::pow(sum[begin + i] - mean[row], 2) / count;
    rstd[row] = 1 / std::sqrt(variance + 1e-5);
    const auto normal = [&](size_t i) { return (sum[begin + i] - mean[row]) * rstd[row]; };
    for (size_t i = 0; i < width; ++i) {
      y[begin + i] = normal(i) * weight[i] + bias[i];
      if (norm == Norm::centred) shift += dy[begin + i] * weight[i] / count;
      slope += dy[begin + i] * weight[i] * normal(i) / count;
      dweight[i] += dy[begin + i] * normal(i);
      dbias[i] += dy[begin + i];
    }
    for (size_t i = 0; i < width; ++i) {
      dx[begin + i] += rstd[row] * (dy[begin + i] * weight[i] - shift - normal(i) * slope);
      dx_sum[i] += dx[begin + i];
    }
  }
};

struct Outputs {
  Norm norm;
  DeviceArray sum, y, mean, rstd, dx, dweight, dbias, dx_sum;

  explicit Outputs(const Reference& r)
      : norm(r.norm),
        sum({r.rows, r.columns}, r.dtype),
        y({r.rows, r.columns}, r.dtype),
        mean({r.rows}, DType::f32),
        rstd({r.rows}, DType::f32),
        dx({r.rows, r.columns}, r.dtype),
        dweight({r.columns}, DType::f32),
        dbias({r.columns}, DType::f32),
        dx_sum({r.columns}, DType::f32) {}

  View mean_view() const { return norm == Norm::centred ? mean.view() : View{}; }

  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> all;
    for (const DeviceArray* array : {&y, &mean, &rstd, &dx, &dweight, &dbias, &dx_sum}) {
      const auto part = array->bits();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
};

struct Inputs {
  DeviceArray x, residual, weight, bias, dy, carried;

  explicit Inputs(const Reference& r)
      : x(r.x, {r.rows, r.columns}, r.dtype),
        residual(r.residual, {r.rows, r.columns}, r.dtype),
        weight(r.weight, {r.columns}, r.dtype),
        bias(r.bias, {r.columns}, r.dtype),
        dy(r.dy, {r.rows, r.columns}, r.dtype),
        carried(r.carried, {r.rows, r.columns}, r.dtype) {}
};

void run_both(const Inputs& in, const Outputs& out, bool fused) {
  launch(gpu_stream(), LayerNormForward{.x = in.x.view(),
                                        .residual = fused ? in.residual.view() : View{},
                                        .weight = in.weight.view(),
                                        .bias = in.bias.view(),
                                        .sum = fused ? out.sum.view() : View{},
                                        .y = out.y.view(),
                                        .mean = out.mean_view(),
                                        .rstd = out.rstd.view()});
  launch(gpu_stream(), LayerNormBackward{.x = fused ? out.sum.view() : in.x.view(),
                                         .weight = in.weight.view(),
                                         .mean = out.mean_view(),
                                         .rstd = out.rstd.view(),
                                         .dy = in.dy.view(),
                                         .carried = in.carried.view(),
                                         .dx = out.dx.view(),
                                         .dweight = out.dweight.view(),
                                         .dbias = out.dbias.view(),
                                         .dx_sum = out.dx_sum.view()});
}

void expect_reference(const Reference& r, const Outputs& out) {
  EXPECT_LE(relative_error(out.y.values(), r.y), tolerance(r.dtype));
  EXPECT_LE(relative_error(out.rstd.values(), r.rstd), tolerance(DType::f32));
  const Numbers mean = out.mean.values();
  for (size_t row = 0; r.norm == Norm::centred && row < mean.size(); ++row)
    ASSERT_NEAR(mean[row], r.mean[row], 64 * 0x1p-24);
  EXPECT_LE(relative_error(out.dx.values(), r.dx), tolerance(r.dtype));
  // A sum over rows is at most 8 + 4 + 64 additions deep. Its terms have random signs. It is therefore
  // smaller than the sum of the magnitudes by the root of their number.
  const double sums = 76 * 0x1p-24 * std::sqrt(static_cast<double>(r.rows)) + 64 * 0x1p-24;
  EXPECT_LE(relative_error(out.dweight.values(), r.dweight), sums);
  EXPECT_LE(relative_error(out.dbias.values(), r.dbias), sums);
  // The terms of dx_sum are rounded as they are stored, which adds their errors.
  EXPECT_LE(relative_error(out.dx_sum.values(), r.dx_sum), sums + tolerance(r.dtype));
}

void expect_reference_in_every_schedule(const std::vector<std::pair<int64_t, int64_t>>& shapes, Norm norm) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, columns] : shapes) {
      SCOPED_TRACE(concat(rows, " rows of ", columns, " ", dtype));
      const bool fused = (columns / 8) % 2 == 0;
      const Reference reference(rows, columns, dtype, fused, norm);
      const Inputs in(reference);
      std::vector<uint8_t> bits;
      for_each_schedule([&] {
        const Outputs out(reference);
        run_both(in, out, fused);
        if (bits.empty()) {
          expect_reference(reference, out);
          if (fused) {
            EXPECT_EQ(out.sum.values(), reference.sum);
          }
          bits = out.bits();
        }
        EXPECT_EQ(out.bits(), bits);
      });
    }
}

TEST(LayerNormOnGpu, MatchesReferenceInEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  // One warp per row with 1 to 4 pieces, whole and ragged; four warps; sixteen warps; enough rows for several
  // blocks.
  expect_reference_in_every_schedule(
      {{300, 48}, {9, 65}, {5, 384}, {21, 768}, {6, 1019}, {3, 1544}, {2, 2049}, {2, 4104}}, Norm::centred);
}

TEST(LayerNormOnGpu, RmsNormMatchesReferenceInEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  // Several rows per warp, whole and ragged, with a last warp that is not full; then the layouts of
  // LayerNorm.
  expect_reference_in_every_schedule({{301, 64},
                                      {37, 40},
                                      {9, 33},
                                      {203, 128},
                                      {19, 72},
                                      {7, 65},
                                      {5, 384},
                                      {21, 768},
                                      {6, 1019},
                                      {3, 1544},
                                      {2, 2049},
                                      {2, 4104}},
                                     Norm::uncentred);
}

TEST(LayerNormOnGpu, ResidualIsAddedInEveryLayout) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t columns : {40, 65, 128, 256, 768, 1024, 2048, 4096, 5000, 8192})
      for (const Norm norm : {Norm::centred, Norm::uncentred}) {
        SCOPED_TRACE(concat(columns, " columns of ", dtype));
        const Reference reference(2, columns, dtype, true, norm);
        const Inputs in(reference);
        const Outputs out(reference);
        run_both(in, out, true);
        expect_reference(reference, out);
        EXPECT_EQ(out.sum.values(), reference.sum);
      }
}

/// A copy of the values that begins between multiples of 16 bytes.
class Shifted {
 public:
  explicit Shifted(const DeviceArray& array)
      : from_(array.view()), memory_({from_.size() + 1}, from_.dtype), view_(from_) {
    view_.data = static_cast<char*>(memory_.view().data) + bytes(from_.dtype);
    copy_bytes(view_.data, gpu_stream(), from_.data, gpu_stream(), from_.bytes());
  }
  View view() const { return view_; }

 private:
  View from_;
  DeviceArray memory_;
  View view_;
};

TEST(LayerNormOnGpu, AlignmentAndAliasesDoNotShowInTheBits) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [norm, columns] : {std::pair{Norm::centred, 384},
                                        {Norm::centred, 768},
                                        {Norm::centred, 1032},
                                        {Norm::uncentred, 64},
                                        {Norm::uncentred, 128},
                                        {Norm::uncentred, 768},
                                        {Norm::uncentred, 1032}}) {
      const Reference reference(10, columns, dtype, false, norm);
      const Inputs in(reference);
      const Outputs out(reference), other(reference);
      run_both(in, out, false);
      const Shifted x(in.x), dy(in.dy), carried(in.carried);
      launch(gpu_stream(), LayerNormForward{.x = x.view(),
                                            .weight = in.weight.view(),
                                            .bias = in.bias.view(),
                                            .y = other.y.view(),
                                            .mean = other.mean_view(),
                                            .rstd = other.rstd.view()});
      launch(gpu_stream(), LayerNormBackward{.x = x.view(),
                                             .weight = in.weight.view(),
                                             .mean = other.mean_view(),
                                             .rstd = other.rstd.view(),
                                             .dy = dy.view(),
                                             .carried = carried.view(),
                                             .dx = other.dx.view(),
                                             .dweight = other.dweight.view(),
                                             .dbias = other.dbias.view(),
                                             .dx_sum = other.dx_sum.view()});
      EXPECT_EQ(other.bits(), out.bits());
      for (const DeviceArray* alias : {&in.dy, &in.carried}) {
        const Inputs again(reference);
        const View dx = alias == &in.dy ? again.dy.view() : again.carried.view();
        launch(gpu_stream(), LayerNormBackward{.x = in.x.view(),
                                               .weight = in.weight.view(),
                                               .mean = out.mean_view(),
                                               .rstd = out.rstd.view(),
                                               .dy = again.dy.view(),
                                               .carried = again.carried.view(),
                                               .dx = dx,
                                               .dweight = other.dweight.view(),
                                               .dbias = other.dbias.view()});
        EXPECT_EQ((alias == &in.dy ? again.dy : again.carried).bits(), out.dx.bits());
        EXPECT_EQ(other.dweight.bits(), out.dweight.bits());
      }
      launch(gpu_stream(), LayerNormForward{.x = in.x.view(),
                                            .weight = in.weight.view(),
                                            .bias = in.bias.view(),
                                            .y = in.x.view(),
                                            .mean = other.mean_view(),
                                            .rstd = other.rstd.view()});
      EXPECT_EQ(in.x.bits(), out.y.bits());
    }
}

TEST(LayerNormOnGpu, BiasAndCarriedAreOptional) {
  LOCKSTEP_NEEDS_GPU();
  for (const Norm norm : {Norm::centred, Norm::uncentred}) {
    Reference reference(20, 96, DType::bf16, false, norm);
    std::fill(reference.bias.begin(), reference.bias.end(), 0.0);
    std::fill(reference.carried.begin(), reference.carried.end(), 0.0);
    const Inputs in(reference);
    const Outputs with_zeros(reference), without(reference);
    run_both(in, with_zeros, false);
    launch(gpu_stream(), LayerNormForward{.x = in.x.view(),
                                          .weight = in.weight.view(),
                                          .y = without.y.view(),
                                          .mean = without.mean_view(),
                                          .rstd = without.rstd.view()});
    launch(gpu_stream(), LayerNormBackward{.x = in.x.view(),
                                           .weight = in.weight.view(),
                                           .mean = without.mean_view(),
                                           .rstd = without.rstd.view(),
                                           .dy = in.dy.view(),
                                           .dx = without.dx.view(),
                                           .dweight = without.dweight.view()});
    // The results are compared as numbers, because -0 + 0 is 0.
    EXPECT_EQ(without.y.values(), with_zeros.y.values());
    EXPECT_EQ(without.dx.values(), with_zeros.dx.values());
    EXPECT_EQ(without.dweight.values(), with_zeros.dweight.values());
  }
}

TEST(LayerNormOnGpu, DoubleAndEndlessRowsAreRefused) {
  LOCKSTEP_NEEDS_GPU();
  for (const auto& [dtype, columns] : {std::pair{DType::f64, 8}, std::pair{DType::bf16, 8200}}) {
    const DType statistics = accumulator_dtype(dtype);
    const DeviceArray x({1, columns}, dtype), weight({columns}, dtype), mean({1}, statistics);
    EXPECT_THROW(launch(gpu_stream(), LayerNormForward{.x = x.view(),
                                                       .weight = weight.view(),
                                                       .y = x.view(),
                                                       .mean = mean.view(),
                                                       .rstd = mean.view()}),
                 Error);
  }
}

}  // namespace
}  // namespace lockstep::testing
