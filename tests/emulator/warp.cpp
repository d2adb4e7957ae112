// SPDX-License-Identifier: Apache-2.0
#include "emulator/block.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

struct Exchange {
  uint64_t bits;
  int source;
  uint64_t result;
};

struct Vote {
  bool predicate;
  uint32_t result;
};

template <class Operand, class Body>
void for_each_lane(Warp& warp, uint32_t mask, Body&& body) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    body(lane, *static_cast<Operand*>(warp.lanes[lane].operand));
  }
}

void exchange(Warp& warp, uint32_t mask) {
  for_each_lane<Exchange>(warp, mask, [&](int, Exchange& own) {
    own.result = static_cast<Exchange*>(warp.lanes[own.source].operand)->bits;
  });
}

void count_votes(Warp& warp, uint32_t mask) {
  uint32_t votes = 0;
  for_each_lane<Vote>(warp, mask, [&](int lane, Vote& vote) { votes |= uint32_t{vote.predicate} << lane; });
  for_each_lane<Vote>(warp, mask, [&](int, Vote& vote) { vote.result = votes; });
}

// Lanes also meet in shuffles and votes, but CUDA guarantees memory order only for __syncwarp.
constexpr WarpOperation warp_barrier_operation{true, true, nullptr};
constexpr WarpOperation shuffle_operation{false, false, exchange};
constexpr WarpOperation vote_operation{false, false, count_votes};

}  // namespace

void warp_barrier(uint32_t mask, Site site) {
  running_block->meet(warp_barrier_operation, "__syncwarp", mask, nullptr, site);
}

uint64_t shuffle(const char* operation, uint32_t mask, uint64_t bits, int source, Site site) {
  if (!(mask >> source & 1))
    running_block->fail([&] {
      return lockstep::concat("shuffle: ", operation, " (", describe(site), ") reads lane ", source,
                              ", which is not in its mask,");
    });
  Exchange own{bits, source, 0};
  running_block->meet(shuffle_operation, operation, mask, &own, site);
  return own.result;
}

uint32_t ballot(const char* operation, uint32_t mask, bool predicate, Site site) {
  Vote own{predicate, 0};
  running_block->meet(vote_operation, operation, mask, &own, site);
  return own.result;
}

int block_barrier(const char* operation, bool predicate, Site site) {
  return running_block->wait_for_block(operation, predicate, site);
}

uint3 thread_index() noexcept { return running_block->running->index; }
uint3 block_index() noexcept { return running_block->index; }
dim3 block_dimensions() noexcept { return running_block->launch->threads; }
dim3 grid_dimensions() noexcept { return running_block->launch->blocks; }
int lane() { return running_block->running->lane; }
void* shared_memory() { return running_block->shared.begin(); }

}  // namespace emulator
