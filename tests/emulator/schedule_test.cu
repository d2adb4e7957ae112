// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "emulator/toy.h"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace emulator {
namespace {

using lockstep::cuda::all_lanes;
using lockstep::cuda::dynamic_shared;
using lockstep::cuda::lane_index;

__global__ void reverse_block(const int* from, int* to) {
  int* shared = dynamic_shared<int>();
  shared[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(Schedule, BarrierOrdersSharedMemory) {
  const Array<int> from(4 * 96), to(4 * 96);
  std::vector<int> values(4 * 96);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i);
  from.set(values);
  in_each_schedule([&] {
    to.fill(-1);
    launch({.blocks = 4, .threads = 96, .shared_bytes = 96 * 4}, reverse_block, from.get(), to.get());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(to.values()[i], static_cast<int>(i / 96 * 96 + 95 - i % 96));
  });
}

__global__ void note_order(int* order, int* next) {
  order[threadIdx.x + blockIdx.x * 64] = atomicAdd(next, 1);
}

TEST(Schedule, SeedsChangeTheOrderOfThreadsAndBlocks) {
  const Array<int> order(4 * 64), next(1);
  std::vector<std::vector<int>> orders;
  for (const uint32_t seed : {0u, 1u, 2u, 1u}) {
    set_schedule(seed);
    next.fill(0);
    launch({.blocks = 4, .threads = 64}, note_order, order.get(), next.get());
    orders.push_back(order.values());
  }
  set_schedule(0);
  for (size_t i = 0; i < orders[0].size(); ++i) EXPECT_EQ(orders[0][i], static_cast<int>(i));
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_EQ(orders[1], orders[3]);
}

__global__ void shuffle_all(int* out) {
  const int lane = lane_index();
  int* row = out + lane * 8;
  row[0] = __shfl_sync(all_lanes, lane, 5);
  row[1] = __shfl_sync(all_lanes, lane, 3, 8);
  row[2] = __shfl_up_sync(all_lanes, lane, 2);
  row[3] = __shfl_down_sync(all_lanes, lane, 4, 16);
  row[4] = __shfl_xor_sync(all_lanes, lane, 9);
  row[5] = static_cast<int>(__ballot_sync(all_lanes, lane % 3 == 0));
  row[6] = __any_sync(all_lanes, lane == 7) * 2 + __all_sync(all_lanes, lane < 32);
  row[7] = __shfl_xor_sync(all_lanes, lane, 8, 8);
}

TEST(Schedule, ShufflesFollowCuda) {
  const Array<int> out(32 * 8);
  in_each_schedule([&] {
    launch({.blocks = 1, .threads = 32}, shuffle_all, out.get());
    const std::vector<int> values = out.values();
    for (int lane = 0; lane < 32; ++lane) {
      const int* row = values.data() + lane * 8;
      EXPECT_EQ(row[0], 5);
      EXPECT_EQ(row[1], lane / 8 * 8 + 3);
      EXPECT_EQ(row[2], lane < 2 ? lane : lane - 2);
      EXPECT_EQ(row[3], lane % 16 + 4 < 16 ? lane + 4 : lane);
      EXPECT_EQ(row[4], lane ^ 9);
      EXPECT_EQ(row[5], 0x49249249);
      EXPECT_EQ(row[6], 3);
      // A lane can read lanes of an earlier segment, but not lanes of a later segment.
      EXPECT_EQ(row[7], lane & 8 ? lane ^ 8 : lane);
    }
  });
}

__global__ void half_warps(int* out) {
  const unsigned mask = lane_index() < 16 ? 0x0000ffffu : 0xffff0000u;
  int value = lane_index();
  for (int distance = 8; distance > 0; distance /= 2) value += __shfl_xor_sync(mask, value, distance);
  out[threadIdx.x] = value;
}

TEST(Schedule, PartsOfAWarpMeetApart) {
  const Array<int> out(64);
  in_each_schedule([&] {
    launch({.blocks = 1, .threads = 64}, half_warps, out.get());
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(out.values()[i], i % 32 < 16 ? 120 : 376);
  });
}

__global__ void count_in_barrier(int* out) {
  const int large = __syncthreads_count(threadIdx.x >= 70);
  const int any = __syncthreads_or(threadIdx.x == 99);
  const int all = __syncthreads_and(threadIdx.x != 99);
  out[threadIdx.x] = large * 4 + any * 2 + all;
}

TEST(Schedule, BarriersCount) {
  const Array<int> out(100);
  launch({.blocks = 1, .threads = 100}, count_in_barrier, out.get());
  for (const int value : out.values()) EXPECT_EQ(value, 30 * 4 + 2);
}

__global__ void leave_early(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

TEST(Schedule, ThreadsThatExitedAreNotWaitedFor) {
  const Array<int> out(128, 0);
  in_each_schedule([&] { launch({.blocks = 2, .threads = 64}, leave_early, out.get()); });
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(out.values()[i], i % 64 < 40 ? 1 : 0);
}

__global__ void barrier_against_shuffle(int* out) {
  if (threadIdx.x < 32)
    __syncthreads();
  else if (threadIdx.x < 48)
    out[threadIdx.x] = __shfl_sync(all_lanes, out[threadIdx.x], 0);
  else
    __syncthreads();
}

TEST(Schedule, DeadlockNamesWhoWaitsWhere) {
  const Array<int> out(64);
  in_each_schedule([&] {
    const std::string error =
        error_of([&] { launch({.blocks = 1, .threads = 64}, barrier_against_shuffle, out.get()); });
    EXPECT_TRUE(has(error, {"emulator: deadlock", "barrier_against_shuffle",
                            "threads 0 to 31 wait at __syncthreads", "threads 48 to 63 wait at __syncthreads",
                            "schedule_test.cu:", "threads 32 to 47 wait at __shfl_sync"}));
  });
}

__global__ void divergent_barrier() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST(Schedule, BarriersOfDifferentLinesAreNotOne) {
  const std::string error = error_of([] { launch({.blocks = 1, .threads = 64}, divergent_barrier); });
  EXPECT_TRUE(has(error, {"emulator: divergent barrier", "schedule_test.cu:"}));
}

__global__ void shuffle_with_the_exited() {
  if (threadIdx.x % 32 >= 16) return;
  __shfl_sync(all_lanes, 1, 0);
}
__global__ void shuffle_from_outside_the_mask() {
  if (lane_index() < 16) __shfl_sync(0x0000ffffu, 1, 20);
}
__global__ void shuffle_outside_the_mask() { __shfl_sync(0x0000ffffu, 1, 0); }
__global__ void shuffle_against_vote() {
  if (lane_index() < 16)
    __shfl_sync(all_lanes, 1, 0);
  else
    __any_sync(all_lanes, 1);
}

TEST(Schedule, WrongShufflesAreNamed) {
  const lockstep::cuda::Grid grid{.blocks = 1, .threads = 32};
  in_each_schedule([&] {
    EXPECT_TRUE(has(error_of([&] { launch(grid, shuffle_with_the_exited); }),
                    {"emulator: shuffle", "names lane", "has exited", "shuffle_with_the_exited"}));
    EXPECT_TRUE(has(error_of([&] { launch(grid, shuffle_from_outside_the_mask); }),
                    {"emulator: shuffle", "reads lane 20", "not in its mask"}));
    EXPECT_TRUE(has(error_of([&] { launch(grid, shuffle_outside_the_mask); }),
                    {"emulator: shuffle", "called by a lane that its mask leaves out"}));
    EXPECT_TRUE(has(error_of([&] { launch(grid, shuffle_against_vote); }),
                    {"emulator: shuffle", "lanes of one mask do different things"}));
  });
  // The last warp of 48 threads has 16 lanes.
  EXPECT_TRUE(
      has(error_of([&] { launch({.blocks = 1, .threads = 48}, shuffle_against_vote); }), {"emulator: "}));
}

__global__ void nothing() {}

TEST(Schedule, ImpossibleLaunchesAreRefused) {
  EXPECT_TRUE(has(error_of([] { launch({.blocks = 1, .threads = 1025}, nothing); }),
                  {"impossible launch of", "1025"}));
  EXPECT_TRUE(
      has(error_of([] { launch({.blocks = dim3(1, 65536), .threads = 1}, nothing); }), {"65535 blocks"}));
  EXPECT_TRUE(
      has(error_of([] { launch({.blocks = 1, .threads = 1, .shared_bytes = 227 * 1024 + 1}, nothing); }),
          {"shared memory"}));
  EXPECT_EQ(error_of([] { launch({.blocks = 0, .threads = 32}, nothing); }), "");
}

__global__ void place_in_grid(uint3* out) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = {thread, block, threadIdx.z * 10 + blockIdx.y};
}

TEST(Schedule, GridsHaveThreeDimensions) {
  const Array<uint3> out(24 * 6);
  in_each_schedule([&] {
    launch({.blocks = dim3(1, 2, 3), .threads = dim3(4, 3, 2)}, place_in_grid, out.get());
    const std::vector<uint3> values = out.values();
    for (unsigned i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i].x, i % 24);
      EXPECT_EQ(values[i].y, i / 24);
      EXPECT_EQ(values[i].z, i % 24 / 12 * 10 + i / 24 % 2);
    }
  });
}

TEST(Schedule, HostThreadsRunKernelsAtOnce) {
  std::vector<std::thread> ranks;
  std::atomic<int> wrong{0};
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&wrong, rank] {
      const Array<int> from(3 * 96, rank), to(3 * 96);
      for (int turn = 0; turn < 20; ++turn) {
        launch({.blocks = 3, .threads = 96, .shared_bytes = 96 * 4}, reverse_block, from.get(), to.get());
        if (to.values() != from.values()) ++wrong;
      }
      if (error_of([] { launch({.blocks = 1, .threads = 64}, divergent_barrier); }).empty()) ++wrong;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace emulator
