// SPDX-License-Identifier: Apache-2.0

// Layer normalisation. A row is in the registers of one warp (up to 1024 columns), of four (4096) or of
// sixteen (8192). Thread t of a row owns its 16-byte pieces t, t + threads, ...
//
// Forward. Bytes: x and y, or two arrays more with a residual. Blocks walk over rows. A warp that has a row
// to itself keeps weight and bias in registers. It loads its next row before it reduces this one, 1.5 KiB per
// warp for 768 columns of 16 bits. The mean comes first and then the squares around it. Both are computed
// from registers.
//
// Backward. Bytes: x, dy and dx, and `carried` if given. The shape decides how many consecutive rows a block
// takes. Its threads add up the gradients of weight and bias of their columns in registers. The block adds
// its warps and writes 8 bytes per column, at most most_blocks times. A second kernel adds these partial sums
// in order: 3 % of the bytes for 65536 rows of 768. For such rows in 16 bits, three blocks of four warps
// share a multiprocessor, with up to 54 KiB in flight. The weight comes from the L1 cache, twice per row.
// With dx_sum a thread also adds up dx, rounded as it is stored. This saves a pass over dx.
//
// RMSNorm has no mean, so its kernels have one sum per row, and one gradient in partial sums. Rows of at most
// 128 columns, such as the heads of queries, are in 8 to 32 lanes of 16 bytes. A warp has up to four of them.
// Models with RMSNorm have no bias and add residuals in products, so other kernels serve the rest of the
// contract.
//
// All are bound by memory.

#include <algorithm>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/layer_norm_layout.cuh"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace {

using cuda::last_row_sum, cuda::launch_grid, cuda::load_piece, cuda::load_row, cuda::make_pack, cuda::Pack,
    cuda::row_sum, cuda::store_piece;

template <class T>
struct Forward {
  const T *x, *residual, *weight, *bias;
  T *sum, *y;
  float *mean, *rstd;
  int64_t rows;
  int columns;
  float epsilon;
};

/// Computes the mean and 1 / deviation of the row whose pieces the threads hold. Without centring the mean is
/// 0.
template <class L>
LOCKSTEP_DEVICE void measure(const typename L::Row& row, const Forward<typename L::T>& k, float& mean,
                             float& rstd) {
  float* scratch = cuda::dynamic_shared<float>();
  const auto columns = static_cast<float>(k.columns);
  mean = 0.0f;
  if constexpr (L::centred) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < L::pieces; ++p)
#pragma unroll
      for (int i = 0; i < L::width; ++i) sum += row[p][i];
    mean = row_sum<L>(sum, scratch) / columns;
  }
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < L::pieces; ++p)
#pragma unroll
    for (int i = 0; i < L::width; ++i) {
      const float deviation = row[p][i] - mean;
      if (L::column(p) + (L::packed ? 0 : i) < k.columns) squares = fmaf(deviation, deviation, squares);
    }
  rstd = 1.0f / sqrtf(last_row_sum<L>(squares, scratch + L::warps) / columns + k.epsilon);
}

/// Writes y of the row whose pieces the threads hold. Weight and bias are in registers, or are read here.
template <class L>
LOCKSTEP_DEVICE void write_normalized(const typename L::Row& row, const typename L::Row& kept_weight,
                                      const typename L::Row& kept_bias, const Forward<typename L::T>& k,
                                      float mean, float rstd, typename L::T* y) {
  using Piece = Pack<typename L::T>;
#pragma unroll
  for (int p = 0; p < L::pieces; ++p) {
    const Piece weight = L::runs_ahead ? kept_weight[p] : load_piece<L>(k.weight, p, k.columns);
    Piece bias = kept_bias[p];
    if (!L::keeps_bias && k.bias) bias = load_piece<L>(k.bias, p, k.columns);
    const Piece result = make_pack<typename L::T>([&](int i) {
      const float normal = (row[p][i] - mean) * rstd;
      return k.bias ? fmaf(normal, weight[i], bias[i]) : normal * weight[i];
    });
    store_piece<L>(y, p, result, k.columns);
  }
}

/// Takes the row to normalise. It is the loaded row, or its sum with the residual, which is stored as well.
template <class L, bool fused>
LOCKSTEP_DEVICE void take_row(typename L::Row& row, const typename L::Row& x, const typename L::Row& residual,
                              typename L::T* sum, int columns) {
#pragma unroll
  for (int p = 0; p < L::pieces; ++p) {
    row[p] = x[p];
    if constexpr (fused) {
      row[p] = make_pack<typename L::T>([&](int i) { return x[p][i] + residual[p][i]; });
      store_piece<L>(sum, p, row[p], columns);
    }
  }
}

template <class L, bool fused>
__global__ void __launch_bounds__(L::threads) forward_kernel(Forward<typename L::T> k) {
  typename L::Row weight = {}, bias = {}, row, x, residual;
  if constexpr (L::runs_ahead) {
    load_row<L>(weight, k.weight, k.columns);
    if (L::keeps_bias && k.bias) load_row<L>(bias, k.bias, k.columns);
  }
  const auto load = [&](int64_t index) {
    if (index >= k.rows) return;
    load_row<L>(x, k.x + index * k.columns, k.columns);
    if constexpr (fused) load_row<L>(residual, k.residual + index * k.columns, k.columns);
  };
  const int64_t stride = int64_t{gridDim.x} * L::rows_at_once;
  int64_t index = int64_t{blockIdx.x} * L::rows_at_once + L::row_in_block();
  if constexpr (L::runs_ahead) load(index);
  for (; index - L::row_in_warp() < k.rows; index += stride) {
    if constexpr (!L::runs_ahead) load(index);
    take_row<L, fused>(row, x, residual, k.sum + index * k.columns, k.columns);
    if constexpr (L::runs_ahead) load(index + stride);
    float mean, rstd;
    measure<L>(row, k, mean, rstd);
    // The last warp may have lanes without a row, which took part in its sums.
    if (L::rows_per_warp > 1 && index >= k.rows) break;
    if (L::leads_row()) {
      if constexpr (L::centred) k.mean[index] = mean;
      k.rstd[index] = rstd;
    }
    write_normalized<L>(row, weight, bias, k, mean, rstd, k.y + index * k.columns);
  }
}

template <class T>
struct Backward {
  const T *x, *weight, *dy, *carried;
  const float *mean, *rstd;
  T* dx;
  float* partials;  ///< [blocks, sums, columns]: of dweight, of dbias if centred, and of dx if it is summed
  int64_t rows;
  int64_t rows_per_block;
  int columns;
};

/// A row and the values that the backward needs of it, without `carried`.
template <class L>
struct RowGradient {
  typename L::Row x, dy;
  float mean, rstd;
  float shift, slope;  ///< the means of weight * dy and of its product with the normalised row
};

/// Adds a row to the threads' sums over rows, and computes its means. Without centring there is no shift, and
/// dbias is not summed.
template <class L>
LOCKSTEP_DEVICE void add_row(RowGradient<L>& row, const Backward<typename L::T>& k,
                             float (&dweight)[L::elements], float (&dbias)[L::centred ? L::elements : 1]) {
  float* scratch = cuda::dynamic_shared<float>();
  float shift = 0.0f, slope = 0.0f;
#pragma unroll
  for (int p = 0; p < L::pieces; ++p) {
    const auto weight = load_piece<L>(k.weight, p, k.columns);
#pragma unroll
    for (int i = 0; i < L::width; ++i) {
      const float d = row.dy[p][i];
      const float normal = (row.x[p][i] - row.mean) * row.rstd;
      const float g = d * weight[i];
      if constexpr (L::centred) shift += g;
      slope = fmaf(g, normal, slope);
      dweight[p * L::width + i] = fmaf(d, normal, dweight[p * L::width + i]);
      if constexpr (L::centred) dbias[p * L::width + i] += d;
    }
  }
  row.shift = 0.0f;
  if constexpr (L::centred) row.shift = row_sum<L>(shift, scratch) / static_cast<float>(k.columns);
  row.slope = last_row_sum<L>(slope, scratch + L::warps) / static_cast<float>(k.columns);
}

/// Writes dx of a row, and adds it to the threads' sums over rows if it is summed. `columns` is 0 for threads
/// without a row.
template <class L, bool sums_dx>
LOCKSTEP_DEVICE void write_gradient(const RowGradient<L>& row, const typename L::Row& carried,
                                    const Backward<typename L::T>& k, int64_t offset, int columns,
                                    float (&dx_sum)[sums_dx ? L::elements : 1]) {
#pragma unroll
  for (int p = 0; p < L::pieces; ++p) {
    const auto weight = load_piece<L>(k.weight, p, k.columns);
    Pack<typename L::T> before = carried[p];
    if (!L::runs_ahead && k.carried) before = load_piece<L>(k.carried + offset, p, columns);
    const auto result = make_pack<typename L::T>([&](int i) {
      const float normal = (row.x[p][i] - row.mean) * row.rstd;
      const float gradient = row.rstd * (fmaf(row.dy[p][i], weight[i], -row.shift) - normal * row.slope);
      return k.carried ? before[i] + gradient : gradient;
    });
    if constexpr (sums_dx) {
#pragma unroll
      for (int i = 0; i < L::width; ++i) dx_sum[p * L::width + i] += result[i];
    }
    store_piece<L>(k.dx + offset, p, result, columns);
  }
}

/// Stores one thread's sums of one gradient in shared memory or in the partial sums.
template <class L>
LOCKSTEP_DEVICE void store_sums(const float (&sums)[L::elements], float* to, int columns) {
#pragma unroll
  for (int p = 0; p < L::pieces; ++p)
#pragma unroll
    for (int i = 0; i < L::width; ++i)
      if (L::column(p) + i < columns) to[L::column(p) + i] = sums[p * L::width + i];
}

/// Stores the block's sum of one gradient. Its warps are added in order.
template <class L>
LOCKSTEP_DEVICE void store_block_sums(const float (&sums)[L::elements], float* to, int columns) {
  if constexpr (L::warps > 1) {
    store_sums<L>(sums, to, columns);
  } else {
    float* shared = cuda::dynamic_shared<float>();
    store_sums<L>(sums, shared + L::row_in_block() * columns, columns);
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < columns; column += L::threads) {
      float sum = shared[column];
#pragma unroll
      for (int warp = 1; warp < L::rows_at_once; ++warp) sum += shared[warp * columns + column];
      to[column] = sum;
    }
    __syncthreads();
  }
}

template <class L, bool sums_dx>
__global__ void __launch_bounds__(L::threads, L::backward_blocks) backward_kernel(Backward<typename L::T> k) {
  float dweight[L::elements] = {}, dbias[L::centred ? L::elements : 1] = {};
  float dx_sum[sums_dx ? L::elements : 1] = {};
  RowGradient<L> row;
  typename L::Row carried = {};
  const int64_t begin = blockIdx.x * k.rows_per_block;
  const int rows = static_cast<int>(min(k.rows_per_block, k.rows - begin));
  for (int i = L::row_in_block(); i - L::row_in_warp() < rows; i += L::rows_at_once) {
    // The last warp may have lanes without a row. They add a row of zeros, and store nothing.
    const int columns = L::rows_per_warp == 1 || i < rows ? k.columns : 0;
    const int64_t offset = (begin + i) * k.columns;
    load_row<L>(row.x, k.x + offset, columns);
    load_row<L>(row.dy, k.dy + offset, columns);
    if (L::runs_ahead && k.carried) load_row<L>(carried, k.carried + offset, columns);
    row.mean = L::centred ? k.mean[begin + i] : 0.0f;
    row.rstd = L::rows_per_warp == 1 || i < rows ? k.rstd[begin + i] : 0.0f;
    add_row<L>(row, k, dweight, dbias);
    // Makes the compiler read the weight again instead of keeping it. Registers are scarce here.
    __syncwarp();
    write_gradient<L, sums_dx>(row, carried, k, offset, columns, dx_sum);
  }
  constexpr int sums = L::centred ? (sums_dx ? 3 : 2) : 1;
  float* partial = k.partials + int64_t{blockIdx.x} * sums * k.columns;
  store_block_sums<L>(dweight, partial, k.columns);
  if constexpr (L::centred) store_block_sums<L>(dbias, partial + k.columns, k.columns);
  if constexpr (sums_dx) store_block_sums<L>(dx_sum, partial + 2 * k.columns, k.columns);
}

/// Adds the rows of partial sums, which have `stride` elements.
__global__ void __launch_bounds__(cuda::row_sum_threads)
    add_partials_kernel(const float* partials, int blocks, int stride, int columns, float* dweight,
                        float* dbias, float* dx_sum) {
  const int column = static_cast<int>(blockIdx.x) * cuda::warp_size + cuda::lane_index();
  const float sum = cuda::sum_of_rows(column < stride ? partials + column : nullptr, blocks, stride,
                                      cuda::dynamic_shared<float>());
  if (cuda::warp_index() > 0 || column >= stride) return;
  if (column < columns)
    dweight[column] = sum;
  else if (column >= 2 * columns)
    dx_sum[column - 2 * columns] = sum;
  else if (dbias)
    dbias[column - columns] = sum;
}

/// An upper limit of blocks in the backward. Each block writes partial sums once.
constexpr int64_t most_blocks = 1024;

/// Sums the columns of x into y, if y is given.
void sum_columns(const CudaStream& stream, const View& x, const View& y) {
  if (y) run(stream, ColumnSum{.x = x, .y = {y.data, {x.shape[-1]}, y.dtype}});
}

}  // namespace

void run(CudaStream stream, const LayerNormForward& k) {
  if (!k.mean && k.residual) {
    run(stream, Add{.a = k.x, .b = k.residual, .y = k.sum});
    LayerNormForward of_sum = k;
    of_sum.x = k.sum;
    of_sum.residual = of_sum.sum = {};
    return run(stream, of_sum);
  }
  const int64_t columns = k.x.shape[-1];
  const int64_t rows = k.x.shape.rows();
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    const auto pointer = [](const View& view) { return static_cast<T*>(view.data); };
    const Forward<T> arguments{.x = pointer(k.x),
                               .residual = pointer(k.residual),
                               .weight = pointer(k.weight),
                               .bias = pointer(k.bias),
                               .sum = pointer(k.sum),
                               .y = pointer(k.y),
                               .mean = k.mean.as<float>(),
                               .rstd = k.rstd.as<float>(),
                               .rows = rows,
                               .columns = static_cast<int>(columns),
                               .epsilon = static_cast<float>(k.epsilon)};
    const bool packed =
        columns % Pack<T>::size == 0 &&
        cuda::is_aligned(k.x.data, k.residual.data, k.weight.data, k.bias.data, k.sum.data, k.y.data);
    cuda::with_layout<T>(columns, packed, static_cast<bool>(k.mean), [&]<class L>() {
      // These blocks are enough for any occupancy. Each walks over rows.
      const int64_t most = int64_t{cuda::multiprocessors(stream)} * 16;
      const int64_t blocks = std::min(most, (rows + L::rows_at_once - 1) / L::rows_at_once);
      auto* kernel = forward_kernel<L, false>;
      if constexpr (L::centred)
        if (k.residual) kernel = forward_kernel<L, true>;
      launch_grid(stream,
                  {.blocks = static_cast<unsigned>(blocks),
                   .threads = L::threads,
                   .shared_bytes = 2 * L::warps * sizeof(float)},
                  kernel, arguments);
    });
  });
}

void run(CudaStream stream, const LayerNormBackward& k) {
  const int64_t columns = k.x.shape[-1];
  const int64_t rows = k.x.shape.rows();
  // A multiple of 8 gives each warp of a block the same number of rows, if the rows are not short.
  const int64_t rows_per_block = std::max<int64_t>(1, (rows + 8 * most_blocks - 1) / (8 * most_blocks)) * 8;
  const unsigned blocks = cuda::blocks_for(rows, rows_per_block);
  const bool centred = static_cast<bool>(k.mean);
  const int64_t sums = (centred ? (k.dx_sum ? 3 : 2) : 1) * columns;
  // This comes first, because dx may overwrite dy.
  if (!centred) sum_columns(stream, k.dy, k.dbias);
  const auto memory = allocate(std::max<int64_t>(1, blocks * sums) * int64_t{sizeof(float)}, stream);
  auto* partials = reinterpret_cast<float*>(memory.get());
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    const auto pointer = [](const View& view) { return static_cast<T*>(view.data); };
    const Backward<T> arguments{.x = pointer(k.x),
                                .weight = pointer(k.weight),
                                .dy = pointer(k.dy),
                                .carried = pointer(k.carried),
                                .mean = k.mean.as<float>(),
                                .rstd = k.rstd.as<float>(),
                                .dx = pointer(k.dx),
                                .partials = partials,
                                .rows = rows,
                                .rows_per_block = rows_per_block,
                                .columns = static_cast<int>(columns)};
    const bool packed = columns % Pack<T>::size == 0 &&
                        cuda::is_aligned(k.x.data, k.weight.data, k.dy.data, k.carried.data, k.dx.data);
    cuda::with_layout<T>(columns, packed, centred, [&]<class L>() {
      auto* kernel = backward_kernel<L, false>;
      if constexpr (L::centred)
        if (k.dx_sum) kernel = backward_kernel<L, true>;
      const int64_t floats = L::warps == 1 ? L::rows_at_once * columns : 2 * L::warps;
      launch_grid(stream,
                  {.blocks = blocks,
                   .threads = L::threads,
                   .shared_bytes = static_cast<size_t>(floats) * sizeof(float)},
                  kernel, arguments);
    });
  });
  launch_grid(stream,
              {.blocks = cuda::blocks_for(sums, cuda::warp_size),
               .threads = cuda::row_sum_threads,
               .shared_bytes = cuda::row_sum_threads * sizeof(float)},
              add_partials_kernel, partials, static_cast<int>(blocks), static_cast<int>(sums),
              static_cast<int>(columns), k.dweight.as<float>(), k.dbias.as<float>(), k.dx_sum.as<float>());
  if (!centred) sum_columns(stream, k.dx, k.dx_sum);
}

}  // namespace lockstep
