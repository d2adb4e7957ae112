// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <tuple>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cuda/attention_problem.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/matmul.h"

// The entry points of attention. run_on_best_tier chooses the kernels. In fp32 the backward first needs the
// dots of y and dy for each row of each head. Eight lanes take one row of one head. A lane reads 16 bytes at
// a time if heads begin at multiples of 16 bytes, otherwise one element at a time. Bytes: y and dy once.
// Bound: memory. On tensor cores the kernel of queries computes the dots. Sums of dqkv's columns come from
// the blocks of the tensor cores' kernels, whose rows of sums one kernel adds. Bytes: 2 % of dqkv.

namespace lockstep {
namespace {

using cuda::attention::Operands;
using cuda::attention::Problem;

constexpr int dot_threads = 256;

template <int lanes, bool packed>
__global__ void __launch_bounds__(dot_threads)
    dot_kernel(const float* y, const float* dy, float* dots, Problem problem, int64_t rows) {
  constexpr int width = cuda::Pack<float>::size;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t row = (int64_t{blockIdx.x} * dot_threads + threadIdx.x) / lanes;  // [batch, time, heads]
  float sum = 0.0f;
  for (int column = lane * width; row < rows && column < problem.size; column += lanes * width) {
    const int64_t at = row * problem.size + column;
    if constexpr (packed) {
      const cuda::Pack<float> left = cuda::load_pack(y + at), right = cuda::load_pack(dy + at);
#pragma unroll
      for (int i = 0; i < width; ++i) sum = fmaf(left[i], right[i], sum);
    } else {
      for (int i = 0; i < width && column + i < problem.size; ++i) sum = fmaf(y[at + i], dy[at + i], sum);
    }
  }
  sum = cuda::warp_sum<lanes>(sum);
  if (lane != 0 || row >= rows) return;
  const int64_t token = row / problem.heads, head = row % problem.heads;
  const int64_t sample = token / problem.time, time = token % problem.time;
  dots[(sample * problem.heads + head) * problem.time + time] = sum;
}

void run_dots(const CudaStream& stream, const cuda::attention::Backward<float>& call) {
  constexpr int lanes = 8;
  const Problem& problem = call.problem;
  const int64_t rows = int64_t{problem.batch} * problem.time * problem.heads;
  const bool packed = problem.size % cuda::Pack<float>::size == 0 && cuda::is_aligned(call.y, call.dy);
  cuda::launch_grid(stream, {.blocks = cuda::blocks_for(rows * lanes, dot_threads), .threads = dot_threads},
                    packed ? dot_kernel<lanes, true> : dot_kernel<lanes, false>, call.y, call.dy, call.dots,
                    problem, rows);
}

/// Rows of sums: [rows, columns].
struct Sums {
  const float* values;
  int64_t rows;
  int columns;
};

/// Adds the rows of two arrays to one row, which has the columns of both.
__global__ void __launch_bounds__(cuda::row_sum_threads) add_sums_kernel(Sums first, Sums second, float* y) {
  const int column = static_cast<int>(blockIdx.x) * cuda::warp_size + cuda::lane_index();
  const bool is_inside = column < first.columns + second.columns, is_first = column < first.columns;
  // A reference to one of the arguments would put both on the stack.
  const float* values = is_first ? first.values + column : second.values + (column - first.columns);
  const float sum =
      cuda::sum_of_rows(is_inside ? values : nullptr, is_first ? first.rows : second.rows,
                        is_first ? first.columns : second.columns, cuda::dynamic_shared<float>());
  if (cuda::warp_index() == 0 && is_inside) y[column] = sum;
}

/// Memory for the sums that the blocks of the tensor cores' kernels write, if sums are wanted.
class BlockSums {
 public:
  BlockSums(const CudaStream& stream, const Problem& problem, bool wanted)
      : columns_(problem.columns), key_columns_(problem.key_columns) {
    if (!wanted) return;
    std::tie(query_blocks_, key_blocks_) = cuda::attention::blocks_of_sums(problem);
    const int64_t floats = query_blocks_ * columns_ + 2 * key_blocks_ * key_columns_;
    memory_ = allocate(floats * static_cast<int64_t>(sizeof(float)), stream);
  }
  float* of_queries() const { return reinterpret_cast<float*>(memory_.get()); }
  float* of_keys() const { return memory_ ? of_queries() + query_blocks_ * columns_ : nullptr; }

  void add(const CudaStream& stream, float* y) const {
    if (!memory_) return;
    cuda::launch_grid(stream,
                      {.blocks = cuda::blocks_for(columns_ + 2 * key_columns_, cuda::warp_size),
                       .threads = cuda::row_sum_threads,
                       .shared_bytes = cuda::row_sum_threads * sizeof(float)},
                      add_sums_kernel, Sums{of_queries(), query_blocks_, columns_},
                      Sums{of_keys(), key_blocks_, 2 * key_columns_}, y);
  }

 private:
  int columns_, key_columns_;
  int64_t query_blocks_ = 0, key_blocks_ = 0;
  std::shared_ptr<std::byte> memory_;
};

View flat(const View& view) { return {view.data, {view.size()}, view.dtype}; }

template <class Kernel>
Problem problem_of(const Kernel& kernel) {
  constexpr int64_t most_blocks = 65535;
  const int64_t batch = kernel.y.shape[0], time = kernel.y.shape[1], columns = kernel.y.shape[2];
  const AttentionHeads& heads = kernel.heads;
  expect(batch <= most_blocks && heads.queries <= most_blocks, "attention on a GPU takes up to ", most_blocks,
         " samples and heads, not ", batch, " and ", heads.queries);
  const int size = static_cast<int>(columns / heads.queries);
  const RandomKey& key = kernel.key;
  return {.batch = static_cast<int>(batch),
          .time = static_cast<int>(time),
          .heads = static_cast<int>(heads.queries),
          .size = size,
          .key_heads = static_cast<int>(heads.keys),
          .group = static_cast<int>(heads.group()),
          .columns = static_cast<int>(columns),
          .key_columns = static_cast<int>(heads.keys) * size,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size))),
          .dropped = kernel.dropout > 0,
          .dropout = {.seed = key.seed,
                      .site = key.site,
                      .sample = key.sample,
                      .step = key.step,
                      .device_step = key.device_step,
                      .threshold = static_cast<uint32_t>(std::lround(65536 * kernel.dropout)),
                      .kept = static_cast<float>(1 - kernel.dropout),
                      .kept_scale = static_cast<float>(1 / (1 - kernel.dropout))}};
}

/// Returns the operands for kernels, which count bytes of a row in 32 bits. T may be const.
template <class T>
Operands<T> operands_of(const QueryKeyValue& qkv) {
  constexpr int64_t most = std::numeric_limits<int>::max() / static_cast<int64_t>(sizeof(T));
  expect(qkv.q.stride <= most && qkv.k.stride <= most, "attention on a GPU takes rows of up to ", most,
         " elements, not ", qkv.q.stride, " and ", qkv.k.stride);
  return {.q = static_cast<T*>(qkv.q.data),
          .k = static_cast<T*>(qkv.k.data),
          .v = static_cast<T*>(qkv.v.data),
          .query_stride = static_cast<int>(qkv.q.stride),
          .key_stride = static_cast<int>(qkv.k.stride)};
}

/// Returns whether every row of the operands begins at a multiple of 16 bytes.
template <class T>
bool has_aligned_rows(const Operands<T>& qkv) {
  constexpr int elements = 16 / sizeof(T);
  return cuda::is_aligned(qkv.q, qkv.k, qkv.v) && qkv.query_stride % elements == 0 &&
         qkv.key_stride % elements == 0;
}

/// Runs a call on the best kernels for it. No other function chooses kernels.
template <class T, class Call>
void run_on_best_tier(const CudaStream& stream, const Call& call) {
  const int size = call.problem.size;
  expect(size <= 128, "attention on a GPU takes head sizes up to 128, not ", size);
  if constexpr (std::is_same_v<T, float>) {
    cuda::attention::run_in_fp32(stream, call);
  } else {
    expect(size % 8 == 0, "attention in 16 bits on a GPU takes head sizes that are multiples of 8, not ",
           size);
    bool is_aligned = has_aligned_rows(call.qkv) && cuda::is_aligned(call.y);
    if constexpr (requires { call.dqkv; })
      is_aligned = is_aligned && has_aligned_rows(call.dqkv) && cuda::is_aligned(call.dy);
    expect(is_aligned, "attention in 16 bits needs tensors whose rows begin at multiples of 16 bytes");
    cuda::attention::run_on_tensor_cores(stream, call);
  }
}

}  // namespace

void run(CudaStream stream, const CausalAttentionForward& kernel) {
  if (kernel.y.size() == 0 || kernel.first_query == kernel.y.shape[1]) return;
  Problem problem = problem_of(kernel);
  problem.first_query = static_cast<int>(kernel.first_query);
  cuda::with_device_type(kernel.y.dtype, [&]<class T>() {
    const cuda::attention::Forward<T> call{problem, operands_of<const T>(kernel.qkv),
                                           static_cast<T*>(kernel.y.data),
                                           static_cast<float*>(kernel.log_sum_exp.data)};
    run_on_best_tier<T>(stream, call);
  });
}

void run(CudaStream stream, const CausalAttentionBackward& kernel) {
  if (kernel.y.size() == 0) return;
  const auto dots = allocate(kernel.log_sum_exp.size() * static_cast<int64_t>(sizeof(float)), stream);
  cuda::with_device_type(kernel.y.dtype, [&]<class T>() {
    constexpr bool is_fp32 = std::is_same_v<T, float>;
    const Problem problem = problem_of(kernel);
    const BlockSums sums(stream, problem, kernel.dqkv_sum && !is_fp32);
    const cuda::attention::Backward<T> call{problem,
                                            operands_of<const T>(kernel.qkv),
                                            static_cast<const T*>(kernel.y.data),
                                            static_cast<const T*>(kernel.dy.data),
                                            static_cast<const float*>(kernel.log_sum_exp.data),
                                            reinterpret_cast<float*>(dots.get()),
                                            operands_of<T>(kernel.dqkv),
                                            sums.of_queries(),
                                            sums.of_keys()};
    if constexpr (is_fp32) run_dots(stream, call);
    run_on_best_tier<T>(stream, call);
    sums.add(stream, kernel.dqkv_sum.as<float>());
    if (is_fp32 && kernel.dqkv_sum)
      run(stream, ColumnSum{.x = kernel.dqkv.packed(), .y = flat(kernel.dqkv_sum)});
  });
}

}  // namespace lockstep
