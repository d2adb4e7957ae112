// SPDX-License-Identifier: Apache-2.0

// First a warp per block of 4096 elements, over all inputs in one launch: lane l adds elements l, l + 32, ...
// in order, and a butterfly adds the lanes, which is the CPU's order. These accesses are of 4 bytes a lane:
// the 128 of a warp are whole sectors, need no alignment, and leave no data in another lane's hands; 16 of
// them are in flight. Then one block adds the partial sums. Read: each element once (4 bytes a gradient), the
// bound; conversion and fused multiply-add in f64 stay below it where f64 runs at 1/64 of f32's rate.

#include <cmath>

#include "core/memory.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/pack.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/table.cuh"
#include "kernels/sum.h"

namespace lockstep {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / cuda::warp_size;
constexpr int final_threads = 1024;

struct Input {
  const float* data;
  int64_t size;
  uint32_t first_tile;
};

struct Inputs {
  static constexpr int capacity = 1300;
  Input inputs[capacity];
  int count = 0;
  uint32_t tiles = 0;
};
static_assert(sizeof(Inputs) + sizeof(void*) <= cuda::parameter_bytes);

/// The sum of term(i) over [0, size) by the whole warp, for size <= sum_block.
template <class S, class Term>
LOCKSTEP_DEVICE S sum_of_block(int size, Term term) {
  const int lane = cuda::lane_index();
  S sum = 0;
  int start = 0;
  constexpr int unrolled = 16;
  for (; start + unrolled * cuda::warp_size <= size; start += unrolled * cuda::warp_size) {
    float values[unrolled];
#pragma unroll
    for (int j = 0; j < unrolled; ++j) values[j] = term.load(start + j * cuda::warp_size + lane);
#pragma unroll
    for (int j = 0; j < unrolled; ++j) sum = term.add(sum, values[j]);
  }
  for (int i = start + lane; i < size; i += cuda::warp_size) sum = term.add(sum, term.load(i));
  return cuda::warp_sum(sum);
}

struct Square {
  const float* x;

  LOCKSTEP_DEVICE float load(int i) const { return __ldcs(x + i); }
  /// The product of two fp32 is exact in f64, so fused or not is the same.
  LOCKSTEP_DEVICE double add(double sum, float value) const {
    const double wide = value;
    return fma(wide, wide, sum);
  }
};

template <class T>
struct Identity {
  const T* x;

  LOCKSTEP_DEVICE float load(int i) const { return cuda::to_float(x[i]); }
  LOCKSTEP_DEVICE float add(float sum, float value) const { return sum + value; }
};

LOCKSTEP_DEVICE int size_of_block(int64_t size, int64_t block) {
  const int64_t rest = size - block * sum_block;
  return static_cast<int>(rest < sum_block ? rest : sum_block);
}

__global__ __launch_bounds__(threads) void square_kernel(const __grid_constant__ Inputs k, double* partials) {
  const uint32_t tile = blockIdx.x * warps + cuda::warp_index();
  if (tile >= k.tiles) return;
  const Input& input = k.inputs[cuda::entry_of_tile(k.inputs, k.count, tile)];
  const int64_t block = tile - input.first_tile;
  const double sum =
      sum_of_block<double>(size_of_block(input.size, block), Square{input.data + block * sum_block});
  if (cuda::lane_index() == 0) partials[tile] = sum;
}

template <class T>
__global__ __launch_bounds__(threads) void sum_kernel(const T* x, int64_t size, int64_t blocks,
                                                      double* partials) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * warps + cuda::warp_index();
  if (block >= blocks) return;
  const float sum = sum_of_block<float>(size_of_block(size, block), Identity<T>{x + block * sum_block});
  if (cuda::lane_index() == 0) partials[block] = sum;
}

LOCKSTEP_DEVICE void store(double* y, double sum) { *y = sum; }
template <class T>
LOCKSTEP_DEVICE void store(T* y, double sum) {
  *y = cuda::from_float<T>(static_cast<float>(sum));
}

/// y = the sum of the partials, a function of their number and order alone.
template <class T>
__global__ __launch_bounds__(final_threads) void final_kernel(const double* partials, int64_t count, T* y) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += final_threads) sum += partials[i];
  sum = cuda::block_sum<final_threads>(sum, cuda::dynamic_shared<double>());
  if (threadIdx.x == 0) store(y, sum);
}

template <class T>
void add_partials(const CudaStream& stream, const double* partials, int64_t count, T* y) {
  cuda::launch_grid(stream,
                    {.blocks = 1,
                     .threads = final_threads,
                     .shared_bytes = final_threads / cuda::warp_size * sizeof(double)},
                    final_kernel<T>, partials, count, y);
}

__global__ __launch_bounds__(cuda::warp_size) void clip_kernel(const double* sum_of_squares, double max_norm,
                                                               double* norm, float* factor) {
  if (threadIdx.x != 0) return;
  const double root = sqrt(*sum_of_squares);
  *norm = root;
  *factor = clip_factor(root, max_norm);
}

int64_t count_blocks(const View& view) { return (view.size() + sum_block - 1) / sum_block; }

}  // namespace

void run(CudaStream stream, const Sum& k) {
  const int64_t blocks = count_blocks(k.x);
  const auto memory = allocate(blocks * static_cast<int64_t>(sizeof(double)), stream);
  auto* partials = reinterpret_cast<double*>(memory.get());
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(blocks, warps), .threads = threads}, sum_kernel<T>,
                      static_cast<const T*>(k.x.data), k.x.size(), blocks, partials);
    add_partials(stream, partials, blocks, static_cast<T*>(k.y.data));
  });
}

void run(CudaStream stream, const SumOfSquares& k) {
  int64_t blocks = 0;
  for (const View& input : k.inputs) {
    expect(input.dtype == DType::f32, "the sum of squares of ", input.dtype, " runs on the CPU only");
    blocks += count_blocks(input);
  }
  const auto memory = allocate(blocks * static_cast<int64_t>(sizeof(double)), stream);
  auto* const partials = reinterpret_cast<double*>(memory.get());
  double* next = partials;
  Inputs table;
  const auto launch_table = [&] {
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(table.tiles, warps), .threads = threads},
                      square_kernel, table, next);
    next += table.tiles;
    table.count = 0;
    table.tiles = 0;
  };
  for (const View& input : k.inputs) {
    if (input.size() == 0) continue;
    table.inputs[table.count++] = {input.as<float>(), input.size(), table.tiles};
    table.tiles += static_cast<uint32_t>(count_blocks(input));
    if (table.count == Inputs::capacity) launch_table();
  }
  launch_table();
  add_partials(stream, partials, blocks, k.y.as<double>());
}

void run(CudaStream stream, const ClipFactor& k) {
  cuda::launch_grid(stream, {.blocks = 1, .threads = cuda::warp_size}, clip_kernel,
                    k.sum_of_squares.as<double>(), k.max_norm, k.norm.as<double>(), k.factor.as<float>());
}

}  // namespace lockstep
