// SPDX-License-Identifier: Apache-2.0
#include "emulator/toy.h"
#include "lockstep/kernels/cuda/device/ptx.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace emulator {
namespace {

using namespace lockstep::cuda;

// ---- cp.async ----

enum class Fault { none, no_wait, no_barrier, early_write, wait_for_older, misaligned, peek };

template <Fault fault>
__global__ void stage(const float4* from, float4* to) {
  float4* shared = dynamic_shared<float4>();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const char* source = reinterpret_cast<const char*>(from + thread);
  cp_async_16(shared + thread, source + (fault == Fault::misaligned ? 4 : 0));
  cp_async_commit();
  cp_async_16(shared + threads + thread, from + thread, thread % 2 == 0);
  cp_async_commit();
  if (fault == Fault::early_write) shared[thread].x = 1.0f;
  if (fault == Fault::wait_for_older)
    cp_async_wait<1>();
  else if (fault != Fault::no_wait)
    cp_async_wait<0>();
  if (fault != Fault::no_barrier) __syncthreads();
  const int other = (thread + 1) % threads;
  to[thread] = shared[other];
  to[threads + thread] = shared[threads + other];
}

template <Fault fault>
std::string stage_error() {
  const Array<float4> from(64, {1, 2, 3, 4}), to(128);
  std::string first;
  in_each_schedule([&] {
    const std::string error = error_of([&] {
      launch({.blocks = 1, .threads = 64, .shared_bytes = 128 * 16}, stage<fault>, from.get(), to.get());
    });
    if (first.empty()) first = error;
    for (size_t i = 0; error.empty() && i < 64; ++i) {
      EXPECT_EQ(to.values()[i].w, 4.0f);
      EXPECT_EQ(to.values()[64 + i].w, i % 2 == 1 ? 4.0f : 0.0f);
    }
  });
  return first;
}

TEST(AsyncCopy, ArrivesAtTheWait) { EXPECT_EQ(stage_error<Fault::none>(), ""); }

TEST(AsyncCopy, FaultsAreSeen) {
  EXPECT_TRUE(has(stage_error<Fault::no_wait>(), {"emulator: race", "cp.async of thread", "has not waited"}));
  EXPECT_TRUE(has(stage_error<Fault::wait_for_older>(), {"emulator: race", "cp.async of thread"}));
  EXPECT_TRUE(has(stage_error<Fault::early_write>(), {"emulator: race: write", "cp.async"}));
  EXPECT_TRUE(has(stage_error<Fault::no_barrier>(), {"emulator: race"}));
  EXPECT_TRUE(has(stage_error<Fault::misaligned>(), {"emulator: misaligned: cp.async"}));
}

/// Alternates between two buffers. The barrier at the end of each turn delays the next copy until all threads
/// have read.
template <bool with_last_barrier>
__global__ void pipeline(const float4* from, float* to, int turns) {
  float4* shared = dynamic_shared<float4>();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const auto copy = [&](int turn) {
    if (turn < turns) cp_async_16(shared + turn % 2 * threads + thread, from + turn * threads + thread);
    cp_async_commit();
  };
  copy(0);
  float sum = 0;
  for (int turn = 0; turn < turns; ++turn) {
    copy(turn + 1);
    cp_async_wait<1>();
    __syncthreads();
    sum += shared[turn % 2 * threads + (thread + 7) % threads].y;
    if (with_last_barrier) __syncthreads();
  }
  to[thread] = sum;
}

TEST(AsyncCopy, ReusesABufferOnlyAfterItsReaders) {
  const Array<float4> from(5 * 64, {1, 2, 3, 4});
  const Array<float> to(64);
  in_each_schedule([&] {
    launch({.blocks = 1, .threads = 64, .shared_bytes = 128 * 16}, pipeline<true>, from.get(), to.get(), 5);
    EXPECT_EQ(to.values(), std::vector<float>(64, 10.0f));
    EXPECT_TRUE(has(error_of([&] {
                      launch({.blocks = 1, .threads = 64, .shared_bytes = 128 * 16}, pipeline<false>,
                             from.get(), to.get(), 5);
                    }),
                    {"emulator: race"}));
  });
}

// ---- ldmatrix and mma.sync ----

/// Computes d [16, 8] = a [16, 16] b [16, 8] + c through shared memory. b is transposed while its rows are
/// loaded.
template <class T>
__global__ void multiply(const T* a, const T* b, const float* c, float* d) {
  T* shared = dynamic_shared<T>();
  const int lane = lane_index();
  for (int i = lane; i < 256; i += 32) shared[i] = a[i];
  for (int i = lane; i < 128; i += 32) shared[256 + i] = b[i];
  __syncwarp();
  uint32_t left[4], right[4];
  load_matrix_x4(left, shared + lane % 16 * 16 + lane / 16 * 8);
  load_matrix_x4_transposed(right, shared + 256 + lane % 16 * 8);
  float sum[4];
  const auto at = [lane](int i) { return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2; };
  for (int i = 0; i < 4; ++i) sum[i] = c[at(i)];
  mma_16x8x16<T>(sum, left, right[0], right[1]);
  for (int i = 0; i < 4; ++i) d[at(i)] = sum[i];
}

template <class T>
void check_multiply(T (*round)(float)) {
  const Array<T> a(256), b(128);
  const Array<float> c(128), d(128);
  std::vector<T> a_values, b_values;
  std::vector<float> c_values, expected(128);
  // The values are small integers, so each sum is exact in any order.
  for (int i = 0; i < 256; ++i) a_values.push_back(round(static_cast<float>(i * 7 % 11 - 5)));
  for (int i = 0; i < 128; ++i) b_values.push_back(round(static_cast<float>(i * 5 % 13 - 6)));
  for (int i = 0; i < 128; ++i) c_values.push_back(static_cast<float>(i % 9));
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float sum = c_values[static_cast<size_t>(row * 8 + column)];
      for (int k = 0; k < 16; ++k)
        sum += static_cast<float>((row * 16 + k) * 7 % 11 - 5) *
               static_cast<float>((k * 8 + column) * 5 % 13 - 6);
      expected[static_cast<size_t>(row * 8 + column)] = sum;
    }
  a.set(a_values);
  b.set(b_values);
  c.set(c_values);
  in_each_schedule([&] {
    d.fill(0);
    launch({.blocks = 1, .threads = 32, .shared_bytes = 384 * 2}, multiply<T>, a.get(), b.get(), c.get(),
           d.get());
    EXPECT_EQ(d.values(), expected);
  });
}

TEST(Matrices, MultiplyInBothTypes) {
  check_multiply<__nv_bfloat16>([](float x) { return __float2bfloat16(x); });
  check_multiply<__half>([](float x) { return __float2half(x); });
}

/// Loads four matrices whose elements are their own numbers. Each lane writes its fragments to `out`.
template <bool transposed>
__global__ void load_numbers(uint32_t* out) {
  auto* shared = dynamic_shared<uint16_t>();
  for (int i = lane_index(); i < 256; i += 32) shared[i] = static_cast<uint16_t>(i);
  __syncwarp();
  uint32_t matrices[4];
  if (transposed)
    load_matrix_x4_transposed(matrices, shared + lane_index() * 8);
  else
    load_matrix_x4(matrices, shared + lane_index() * 8);
  for (int i = 0; i < 4; ++i) out[lane_index() * 4 + i] = matrices[i];
}

TEST(Matrices, LanesHoldWhatTheManualSays) {
  const Array<uint32_t> out(128);
  for (const bool transposed : {false, true}) {
    launch({.blocks = 1, .threads = 32, .shared_bytes = 512},
           transposed ? load_numbers<true> : load_numbers<false>, out.get());
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned matrix = 0; matrix < 4; ++matrix) {
        const unsigned row = lane / 4, column = lane % 4 * 2;
        const auto element = [&](unsigned i, unsigned j) {
          return matrix * 64 + (transposed ? j * 8 + i : i * 8 + j);
        };
        EXPECT_EQ(out.values()[lane * 4 + matrix], element(row, column) | element(row, column + 1) << 16);
      }
  }
}

template <bool with_barrier>
__global__ void load_rows_of_others(uint32_t* out, int shift) {
  auto* shared = dynamic_shared<uint4>();
  shared[lane_index()] = uint4{1, 2, 3, 4};
  if (with_barrier) __syncwarp();
  uint32_t matrices[4];
  load_matrix_x4(matrices, reinterpret_cast<char*>(shared + (lane_index() ^ 1)) + shift);
  out[lane_index()] = matrices[0];
}

TEST(Matrices, FaultsAreSeen) {
  const Array<uint32_t> out(32);
  const Grid grid{.blocks = 1, .threads = 32, .shared_bytes = 512};
  EXPECT_EQ(error_of([&] { launch(grid, load_rows_of_others<true>, out.get(), 0); }), "");
  EXPECT_TRUE(
      has(error_of([&] { launch(grid, load_rows_of_others<false>, out.get(), 0); }), {"emulator: race"}));
  EXPECT_TRUE(has(error_of([&] { launch(grid, load_rows_of_others<true>, out.get(), 2); }),
                  {"emulator: misaligned: ldmatrix", "ptx_test.cu:"}));
  EXPECT_TRUE(has(error_of([&] { launch(grid, load_rows_of_others<true>, out.get(), 512); }),
                  {"emulator: out of bounds"}));
}

}  // namespace
}  // namespace emulator
