// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "emulator/toy.h"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/ptx.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace emulator {
namespace {

using lockstep::cuda::dynamic_shared;
using lockstep::cuda::lane_index;
using lockstep::cuda::warp_index;

enum class Sync { none, warp, half_warp, block };

template <Sync sync>
__device__ void synchronize() {
  if constexpr (sync == Sync::warp) __syncwarp();
  if constexpr (sync == Sync::half_warp) __syncwarp(lane_index() < 16 ? 0x0000ffffu : 0xffff0000u);
  if constexpr (sync == Sync::block) __syncthreads();
}

/// Each thread reads the value of the thread with the number `distance` higher.
template <Sync sync, class T>
__global__ void read_neighbour(T* out, int distance) {
  T* shared = dynamic_shared<T>();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  shared[thread] = static_cast<T>(thread);
  synchronize<sync>();
  out[thread] = shared[(thread + distance) % threads];
}

template <Sync sync, class T = int>
std::string neighbour_error(unsigned threads, int distance) {
  std::string error;
  const Array<T> out(threads);
  in_each_schedule([&] {
    error = error_of([&] {
      launch({.blocks = 2, .threads = threads, .shared_bytes = threads * sizeof(T)}, read_neighbour<sync, T>,
             out.get(), distance);
    });
  });
  return error;
}

// Each block writes its own part of `out`.
template <Sync sync, class T>
__global__ void exchange_in_block(T* out, int distance) {
  T* shared = dynamic_shared<T>();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  shared[thread] = static_cast<T>(thread);
  synchronize<sync>();
  const T value = shared[(thread + distance) % threads];
  synchronize<sync>();
  shared[thread] = value;
  synchronize<sync>();
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[(thread + distance) % threads];
}

template <Sync sync, class T = int>
std::string exchange_error(unsigned threads, int distance) {
  std::string first;
  const Array<T> out(2 * threads);
  in_each_schedule([&] {
    const std::string error = error_of([&] {
      launch({.blocks = 2, .threads = threads, .shared_bytes = threads * sizeof(T)},
             exchange_in_block<sync, T>, out.get(), distance);
    });
    if (first.empty()) first = error;
  });
  return first;
}

TEST(Race, BetweenWarpsNeedsABlockBarrier) {
  EXPECT_EQ((exchange_error<Sync::block>(96, 32)), "");
  EXPECT_TRUE(has(exchange_error<Sync::warp>(96, 32),
                  {"emulator: race", "4 bytes at shared memory", "exchange_in_block"}));
  EXPECT_TRUE(has(exchange_error<Sync::none>(96, 1), {"emulator: race"}));
}

TEST(Race, WithinAWarpNeedsAWarpBarrier) {
  EXPECT_EQ((exchange_error<Sync::block>(32, 1)), "");
  EXPECT_EQ((exchange_error<Sync::warp>(32, 1)), "");
  EXPECT_EQ((exchange_error<Sync::warp>(24, 5)), "") << "a warp that is not full";
  EXPECT_TRUE(has(exchange_error<Sync::none>(32, 1), {"emulator: race"}));
  EXPECT_TRUE(has(exchange_error<Sync::half_warp>(32, 1), {"emulator: race"}));
}

TEST(Race, SmallElementsOfOneWordAreApart) {
  EXPECT_EQ((exchange_error<Sync::block, uint8_t>(96, 33)), "");
  EXPECT_EQ((exchange_error<Sync::warp, uint16_t>(32, 3)), "");
  EXPECT_TRUE(has(exchange_error<Sync::none, uint16_t>(32, 1), {"emulator: race", "2 bytes"}));
  EXPECT_TRUE(has(exchange_error<Sync::warp, uint8_t>(64, 1), {"emulator: race", "1 bytes"}));
}

TEST(Race, BlocksThatWriteTheSamePlace) {
  EXPECT_TRUE(has(neighbour_error<Sync::block>(64, 1), {"emulator: race", "another block", "allocation"}));
}

/// Half-warps exchange values between their lanes. After a __syncwarp of the whole warp each reads the
/// other's values.
__global__ void partial_then_whole(int* out) {
  int* shared = dynamic_shared<int>();
  const int lane = lane_index();
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  for (int turn = 0; turn < 3; ++turn) {
    shared[lane] = lane + turn;
    __syncwarp(half);
    const int value = shared[lane ^ 5];
    __syncwarp(half);
    shared[lane] = value;
    __syncwarp();
    out[lane] = shared[lane ^ 16];
    __syncwarp();
  }
}

TEST(Race, PartsOfAWarpAreOrderedAmongThemselves) {
  const Array<int> out(32);
  in_each_schedule([&] {
    launch({.blocks = 1, .threads = 32, .shared_bytes = 128}, partial_then_whole, out.get());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out.values()[static_cast<size_t>(i)], (i ^ 16 ^ 5) + 2);
  });
}

__global__ void shuffle_is_no_barrier(int* out) {
  int* shared = dynamic_shared<int>();
  shared[lane_index()] = 1;
  const int zero = __shfl_sync(0xffffffffu, 0, 0);
  out[lane_index()] = shared[lane_index() ^ 1] + zero;
}

TEST(Race, ShufflesOrderNoMemory) {
  const Array<int> out(32);
  const std::string error = error_of(
      [&] { launch({.blocks = 1, .threads = 32, .shared_bytes = 128}, shuffle_is_no_barrier, out.get()); });
  EXPECT_TRUE(has(error, {"emulator: race: read of 4 bytes", "write by thread"}));
}

/// All threads read a value, then one thread writes it.
template <bool with_barrier>
__global__ void write_after_all_read(int* value, int* out) {
  const int old = *value;
  if (with_barrier) __syncthreads();
  if (threadIdx.x == 40) *value = old + 1;
  out[threadIdx.x] = old;
}

TEST(Race, AWriteAfterReadsOfSeveralWarps) {
  const Array<int> value(1), out(96);
  in_each_schedule([&] {
    EXPECT_EQ(error_of([&] {
                launch({.blocks = 1, .threads = 96}, write_after_all_read<true>, value.get(), out.get());
              }),
              "");
    EXPECT_TRUE(has(error_of([&] {
                      launch({.blocks = 1, .threads = 96}, write_after_all_read<false>, value.get(),
                             out.get());
                    }),
                    {"emulator: race"}));
  });
}

__global__ void read_all_write_own(const float* all, float* own, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += all[i];
  __syncthreads();
  if (threadIdx.x == 0) own[blockIdx.x] = sum;
}

TEST(Race, ABlockWritesWhatOthersRead) {
  const Array<float> values(8, 1.0f), sums(8);
  in_each_schedule([&] {
    launch({.blocks = 8, .threads = 32}, read_all_write_own, values.get(), sums.get(), 8);
    EXPECT_EQ(sums.values(), std::vector<float>(8, 8.0f));
    EXPECT_TRUE(has(error_of([&] {
                      launch({.blocks = 8, .threads = 32}, read_all_write_own, values.get(), values.get(), 8);
                    }),
                    {"emulator: race", "another block", "read_all_write_own"}));
    values.fill(1.0f);
  });
}

__global__ void in_place(__nv_bfloat16* values, int n) {
  for (int i = static_cast<int>(threadIdx.x + blockIdx.x * blockDim.x); i < n;
       i += static_cast<int>(blockDim.x * gridDim.x))
    values[i] = __float2bfloat16(__bfloat162float(values[i]) + 1.0f);
}

TEST(Race, NeighboursInOneWordMayBelongToTwoBlocks) {
  const Array<__nv_bfloat16> values(999, __float2bfloat16(1.0f));
  in_each_schedule([&] { launch({.blocks = 3, .threads = 33}, in_place, values.get() + 1, 997); });
  EXPECT_EQ(__bfloat162float(values.values()[0]), 1.0f);
  EXPECT_EQ(__bfloat162float(values.values()[500]), 7.0f);
}

__global__ void count_atomically(int* counter, int* plain) {
  atomicAdd(counter, 1);
  if (plain != nullptr) *plain += 1;
}

TEST(Race, AtomicOperationsAreNone) {
  const Array<int> counter(1, 0);
  in_each_schedule([&] { launch({.blocks = 3, .threads = 50}, count_atomically, counter.get(), nullptr); },
                   4);
  EXPECT_EQ(counter.values()[0], 600);
  EXPECT_TRUE(has(
      error_of([&] { launch({.blocks = 3, .threads = 50}, count_atomically, counter.get(), counter.get()); }),
      {"emulator: race"}));
}

// ---- Bounds and addresses ----

__global__ void write_at(float* values, int64_t index) { values[index] = 1.0f; }
__global__ void read_at(const float* values, int64_t index, float* out) { *out = values[index]; }
__global__ void write_shared_at(int index) { dynamic_shared<float>()[index] = 1.0f; }
__global__ void read_quad(const float* values, float* out) { *out = lockstep::cuda::load_pack(values)[0]; }

const lockstep::cuda::Grid one_thread{.blocks = 1, .threads = 1};

TEST(Bounds, OfAllocations) {
  const Array<float> values(100), out(1);
  EXPECT_EQ(error_of([&] { launch(one_thread, write_at, values.get(), 99); }), "");
  EXPECT_TRUE(has(error_of([&] { launch(one_thread, write_at, values.get(), 100); }),
                  {"emulator: out of bounds: write of 4 bytes", "(400 bytes) + 400", "write_at"}));
  EXPECT_TRUE(has(error_of([&] { launch(one_thread, write_at, values.get(), -1); }),
                  {"emulator: out of bounds", "(400 bytes) - 4"}));
  EXPECT_TRUE(has(error_of([&] { launch(one_thread, read_at, values.get(), 100, out.get()); }),
                  {"emulator: out of bounds: read"}));
}

TEST(Bounds, OfTheUsedPart) {
  const Array<float> values(100);
  set_used_bytes(values.get(), 10 * sizeof(float));
  EXPECT_EQ(error_of([&] { launch(one_thread, write_at, values.get(), 9); }), "");
  EXPECT_TRUE(
      has(error_of([&] { launch(one_thread, write_at, values.get(), 10); }), {"emulator: out of bounds"}));
}

TEST(Bounds, FreedMemoryIsNobodys) {
  float* values = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&values), 400), cudaSuccess);
  ASSERT_EQ(cudaFree(values), cudaSuccess);
  EXPECT_TRUE(has(error_of([&] { launch(one_thread, write_at, values, 3); }),
                  {"emulator: out of bounds", "freed allocation", "+ 12"}));
}

TEST(Bounds, OfSharedMemory) {
  const lockstep::cuda::Grid grid{.blocks = 1, .threads = 1, .shared_bytes = 40};
  EXPECT_EQ(error_of([&] { launch(grid, write_shared_at, 9); }), "");
  EXPECT_TRUE(has(error_of([&] { launch(grid, write_shared_at, 10); }),
                  {"emulator: out of bounds", "shared memory (40 bytes) + 40"}));
  EXPECT_TRUE(has(error_of([&] { launch(grid, write_shared_at, -1); }), {"emulator: out of bounds"}));
}

TEST(Bounds, HostMemoryIsNotTheDevices) {
  std::vector<float> host(4);
  EXPECT_TRUE(has(error_of([&] { launch(one_thread, write_at, host.data(), 1); }),
                  {"emulator: host memory", "write_at"}));
}

template <bool streaming>
__global__ void read_streaming(const float* values, float* out) {
  *out = streaming ? lockstep::cuda::load_pack_streaming(values)[0]
                   : lockstep::cuda::load_group<2>(values).values[1];
}

TEST(Bounds, PacksAreAligned) {
  const Array<float> values(8), out(1);
  EXPECT_EQ(error_of([&] { launch(one_thread, read_quad, values.get() + 4, out.get()); }), "");
  EXPECT_EQ(error_of([&] { launch(one_thread, read_streaming<false>, values.get() + 2, out.get()); }), "");
  for (auto* kernel : {read_quad, read_streaming<false>, read_streaming<true>})
    EXPECT_TRUE(has(error_of([&] { launch(one_thread, kernel, values.get() + 1, out.get()); }),
                    {"emulator: misaligned", ":", "in kernel"}));
}

__global__ void read_unwritten(float* out) { out[threadIdx.x] = dynamic_shared<float>()[threadIdx.x]; }

TEST(Bounds, SharedMemoryBeginsPoisoned) {
  const Array<float> out(32, 0.0f);
  launch({.blocks = 1, .threads = 32, .shared_bytes = 128}, read_unwritten, out.get());
  for (const float value : out.values()) EXPECT_TRUE(std::isnan(value));
}

__global__ void index_own_array(float* out, int index) {
  float own[4] = {1, 2, 3, 4};
  own[index] = 5;
  out[0] = own[0] + own[3];
}

TEST(Bounds, OfAThreadsOwnArrays) {
  const Array<float> out(1);
  EXPECT_EQ(error_of([&] { launch(one_thread, index_own_array, out.get(), 3); }), "");
  EXPECT_TRUE(has(error_of([&] { launch(one_thread, index_own_array, out.get(), 4); }),
                  {"emulator: out of bounds: index of an array", "checker_test.cu:"}));
}

}  // namespace
}  // namespace emulator
