// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.h"

#include <cmath>

#include "core/memory.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/map.h"

namespace lockstep {
namespace {

/// Rows whose contributions to dweight and dbias are added up together: fixed, as it shows in the bits.
constexpr int64_t rows_per_block = 32;

int64_t blocks_of(const LayerNormBackward& k) {
  return (k.x.shape.rows() + rows_per_block - 1) / rows_per_block;
}

template <class S>
void forward_rows(const LayerNormForward& k, int64_t begin, int64_t end) {
  using T = Compute<S>;
  const int64_t columns = k.x.shape[-1];
  const S* weight = k.weight.as<S>();
  const S* bias = k.bias.as<S>();
  for (int64_t row = begin; row < end; ++row) {
    const S* x = k.x.as<S>() + row * columns;
    S* y = k.y.as<S>() + row * columns;
    if (k.residual) {
      S* sum = k.sum.as<S>() + row * columns;
      map_range<T>(
          0, columns, sum, [](T a, T b) { return a + b; }, x, k.residual.as<S>() + row * columns);
      x = sum;
    }
    const auto distance = [=](int64_t i, T from) { return static_cast<T>(x[i]) - from; };
    const T mean = lane_sum<T>(columns, [=](int64_t i) { return x[i]; }) / static_cast<T>(columns);
    const T variance =
        lane_sum<T>(columns, [=](int64_t i) { return distance(i, mean) * distance(i, mean); }) /
        static_cast<T>(columns);
    const T rstd = T(1) / std::sqrt(variance + static_cast<T>(k.epsilon));
    k.mean.as<T>()[row] = mean;
    k.rstd.as<T>()[row] = rstd;
    if (bias)
      map_range<T>(
          0, columns, y, [=](T value, T w, T b) { return std::fma((value - mean) * rstd, w, b); }, x, weight,
          bias);
    else
      map_range<T>(
          0, columns, y, [=](T value, T w) { return (value - mean) * rstd * w; }, x, weight);
  }
}

/// dx of up to `at_once` rows from `first` on, and their sums into dweight and dbias (which may be null).
template <class S>
class BackwardRows {
 public:
  using T = Compute<S>;
  /// So that sums into dweight and dbias stay in registers from row to row, and rows in the first-level
  /// cache.
  static constexpr int64_t at_once = 4;

  BackwardRows(const LayerNormBackward& k, int64_t first, int64_t count)
      : k_(k), weight_(k.weight.as<S>()), columns_(k.x.shape[-1]), first_(first), count_(count) {
    using Values = Simd<T>;
    for (int64_t r = 0; r < count; ++r) {
      const S *x = at(k.x, r), *dy = at(k.dy, r);
      const T mean = k.mean.as<T>()[first + r], rstd = k.rstd.as<T>()[first + r];
      Values shift, slope;
      for_each_piece<sum_lanes>(
          columns_, [&](int64_t begin, int64_t used) __attribute__((always_inline)) {
            const Values weighted = Values::load(dy + begin, used) * Values::load(weight_ + begin, used);
            const Values normalised =
                Values::of([=](int64_t i) { return (static_cast<T>(x[begin + i]) - mean) * rstd; }, used);
            shift = shift + weighted;
            slope = slope + weighted * normalised;
          });
      const auto size = static_cast<T>(columns_);
      rows_[r] = {mean, rstd, shift.total() / size, slope.total() / size};
    }
  }

  void differentiate(T* dweight, T* dbias) const {
    for_each_piece<piece>(
        columns_, [&](int64_t begin, int64_t used)
                      __attribute__((always_inline)) { differentiate(begin, used, dweight, dbias); });
  }

 private:
  static constexpr int64_t piece = 64;
  struct Row {
    T mean, rstd, shift, slope;
  };

  [[gnu::always_inline]] S* at(const View& view, int64_t r) const {
    return view.as<S>() + (first_ + r) * columns_;
  }

  [[gnu::always_inline]] void differentiate(int64_t begin, int64_t used, T* dweight, T* dbias) const {
    using Values = Simd<T, piece>;
    const Values weight = Values::load(weight_ + begin, used);
    Values weights = Values::load(dweight + begin, used), biases;
    if (dbias) biases = Values::load(dbias + begin, used);
    for (int64_t r = 0; r < count_; ++r) {
      const Row& row = rows_[r];
      const Values dy = Values::load(at(k_.dy, r) + begin, used);
      const Values rstd = Values::all(row.rstd);
      const Values normalised = (Values::load(at(k_.x, r) + begin, used) - Values::all(row.mean)) * rstd;
      weights = fma(dy, normalised, weights);
      biases = biases + dy;
      Values dx = rstd * (fma(dy, weight, Values::all(-row.shift)) - normalised * Values::all(row.slope));
      if (k_.carried) dx = Values::load(at(k_.carried, r) + begin, used) + dx;
      dx.store(at(k_.dx, r) + begin, used);
    }
    weights.store(dweight + begin, used);
    if (dbias) biases.store(dbias + begin, used);
  }

  const LayerNormBackward& k_;
  const S* weight_;
  int64_t columns_, first_, count_;
  Row rows_[at_once];
};

/// total[i] = sum over blocks of partials[block][i], in order of blocks.
template <class T>
void add_partials(const CpuStream& stream, const T* partials, int64_t blocks, int64_t stride, int64_t columns,
                  T* total) {
  const int64_t grain = std::max<int64_t>(64, elementwise_grain / std::max<int64_t>(1, blocks));
  stream.for_each_chunk(columns, grain, [&](int64_t begin, int64_t end) {
    std::fill(total + begin, total + end, T(0));
    for (int64_t block = 0; block < blocks; ++block)
      map_range<T>(
          begin, end, total, [](T sum, T term) { return sum + term; }, total, partials + block * stride);
  });
}

}  // namespace

void run(CpuStream stream, const LayerNormForward& k) {
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / std::max<int64_t>(1, k.x.shape[-1]));
  with_float_type(k.x.dtype, [&]<class S>() {
    stream.for_each_chunk(k.x.shape.rows(), grain,
                          [&](int64_t begin, int64_t end) { forward_rows<S>(k, begin, end); });
  });
}

/// Of each block the partial dweight, then the partial dbias.
int64_t scratch_bytes(CpuStream, const LayerNormBackward& k) {
  return blocks_of(k) * 2 * k.x.shape[-1] * bytes(accumulator_dtype(k.x.dtype));
}

void run(CpuStream stream, const LayerNormBackward& k) {
  const int64_t rows = k.x.shape.rows();
  const int64_t columns = k.x.shape[-1];
  const int64_t blocks = blocks_of(k);
  with_float_type(k.x.dtype, [&]<class S>() {
    using T = Compute<S>;
    const auto memory = allocate_scratch(stream, k);
    T* partials = reinterpret_cast<T*>(memory.get());
    stream.for_each_chunk(rows, rows_per_block, [&](int64_t begin, int64_t end) {
      T* dweight = partials + begin / rows_per_block * 2 * columns;
      std::fill(dweight, dweight + 2 * columns, T(0));
      using Rows = BackwardRows<S>;
      for (int64_t row = begin; row < end; row += Rows::at_once)
        Rows(k, row, std::min(Rows::at_once, end - row))
            .differentiate(dweight, k.dbias ? dweight + columns : nullptr);
    });
    add_partials(stream, partials, blocks, 2 * columns, columns, k.dweight.as<T>());
    if (k.dbias) add_partials(stream, partials + columns, blocks, 2 * columns, columns, k.dbias.as<T>());
  });
}

}  // namespace lockstep
