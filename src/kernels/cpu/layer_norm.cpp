// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/layer_norm.h"

#include <cmath>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/cpu/lanes.h"
#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace {

/// Number of rows whose contributions to dweight and dbias are added up together. It is fixed because it
/// affects the bits.
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
    const T mean =
        k.mean ? lane_sum<T>(columns, [=](int64_t i) { return x[i]; }) / static_cast<T>(columns) : T(0);
    const T variance =
        lane_sum<T>(columns, [=](int64_t i) { return distance(i, mean) * distance(i, mean); }) /
        static_cast<T>(columns);
    const T rstd = T(1) / std::sqrt(variance + static_cast<T>(k.epsilon));
    if (k.mean) k.mean.as<T>()[row] = mean;
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

/// Number of rows that a backward processes at once. Their sums into dweight and dbias stay in registers from
/// row to row. The rows themselves stay in the first-level cache.
constexpr int64_t rows_at_once = 4;

/// Computes dx of rows [first, first + count), count <= rows_at_once. Adds the contributions of these rows to
/// dweight and dbias. dbias may be null.
template <class S, class T>
void backward_rows(const LayerNormBackward& k, int64_t first, int64_t count, T* dweight, T* dbias) {
  struct Row {
    const S *x, *dy, *carried;
    S* dx;
    T mean, rstd, shift = 0, slope = 0;
    [[gnu::always_inline]] T normalised(int64_t i) const { return (static_cast<T>(x[i]) - mean) * rstd; }
  } rows[rows_at_once];
  const int64_t columns = k.x.shape[-1];
  const S* weight = k.weight.as<S>();
  for (int64_t r = 0; r < count; ++r) {
    const int64_t offset = (first + r) * columns;
    Row& row = rows[r];
    row = {.x = k.x.as<S>() + offset,
           .dy = k.dy.as<S>() + offset,
           .carried = k.carried ? k.carried.as<S>() + offset : nullptr,
           .dx = k.dx.as<S>() + offset,
           .mean = k.mean ? k.mean.as<T>()[first + r] : T(0),
           .rstd = k.rstd.as<T>()[first + r]};
    using Values = Simd<T>;
    Values shift, slope;
    for_each_piece<sum_lanes>(
        columns, [&](int64_t begin, int64_t used) __attribute__((always_inline)) {
          const Values weighted = Values::load(row.dy + begin, used) * Values::load(weight + begin, used);
          shift = shift + weighted;
          slope = slope + weighted * Values::of([&](int64_t i) { return row.normalised(begin + i); }, used);
        });
    row.shift = k.mean ? shift.total() / static_cast<T>(columns) : T(0);
    row.slope = slope.total() / static_cast<T>(columns);
  }
  constexpr int64_t piece = 64;
  using Values = Simd<T, piece>;
  for_each_piece<piece>(
      columns, [&](int64_t begin, int64_t used) __attribute__((always_inline)) {
        const Values w = Values::load(weight + begin, used);
        Values weights = Values::load(dweight + begin, used);
        Values biases = dbias ? Values::load(dbias + begin, used) : Values();
        for (int64_t r = 0; r < count; ++r) {
          const Row row = rows[r];
          const Values dy = Values::load(row.dy + begin, used);
          const Values normalised = Values::of([&](int64_t i) { return row.normalised(begin + i); }, used);
          weights = fma(dy, normalised, weights);
          biases = biases + dy;
          Values dx = Values::all(row.rstd) *
                      (fma(dy, w, Values::all(-row.shift)) - normalised * Values::all(row.slope));
          if (row.carried) dx = Values::load(row.carried + begin, used) + dx;
          dx.store(row.dx + begin, used);
        }
        weights.store(dweight + begin, used);
        if (dbias) biases.store(dbias + begin, used);
      });
}

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

/// The memory holds the partial dweight and then the partial dbias of each block.
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
      for (int64_t row = begin; row < end; row += rows_at_once)
        backward_rows<S>(k, row, std::min(rows_at_once, end - row), dweight,
                         k.dbias ? dweight + columns : nullptr);
    });
    add_partials(stream, partials, blocks, 2 * columns, columns, k.dweight.as<T>());
    if (k.dbias) add_partials(stream, partials + columns, blocks, 2 * columns, columns, k.dbias.as<T>());
  });
  if (k.dx_sum) run(stream, ColumnSum{.x = k.dx, .y = {k.dx_sum.data, {columns}, k.dx_sum.dtype}});
}

}  // namespace lockstep
