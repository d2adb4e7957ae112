// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>

#include "emulator/block.h"
#include "emulator/cudart.h"
#include "emulator/recorder.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

std::atomic<uint32_t> schedule{0};

/// Returns the order in which blocks run: 0, 1, 2, ... for seed 0, or a random order.
std::vector<uint32_t> order_of_blocks(uint32_t count, uint32_t seed) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (seed != 0) std::shuffle(order.begin(), order.end(), std::minstd_rand(seed));
  return order;
}

/// A guard that sets running_block for the duration of a launch.
class Running {
 public:
  explicit Running(Block& block) { running_block = &block; }
  ~Running() { running_block = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace

void set_schedule(uint32_t seed) { schedule = seed; }

uint32_t current_schedule() { return schedule; }

void check(const Launch& launch) {
  const auto refuse = [&](const auto&... why) {
    throw lockstep::Error(
        lockstep::concat("emulator: impossible launch of ", function_name(launch.kernel), ": ", why...));
  };
  const uint64_t threads = uint64_t{launch.threads.x} * launch.threads.y * launch.threads.z;
  const uint64_t blocks = uint64_t{launch.blocks.x} * launch.blocks.y * launch.blocks.z;
  if (threads == 0 || threads > most_threads) refuse(threads, " threads a block, 1 to 1024 are possible");
  if (launch.threads.z > 64) refuse("more than 64 threads along z");
  if (launch.shared_bytes > most_shared_bytes)
    refuse(launch.shared_bytes, " bytes of shared memory, a GPU has 232448");
  if (launch.blocks.x > 0x7fffffffu || launch.blocks.y > 65535 || launch.blocks.z > 65535)
    refuse("more than 65535 blocks along y or z");
  if (blocks > 0xffffffffu) refuse(blocks, " blocks, but the emulator runs at most 4294967295");
}

void run(const Launch& launch) {
  thread_local std::unique_ptr<Block> own;
  lockstep::expect(running_block == nullptr, "emulator: a kernel launches a kernel");
  check(launch);
  if (!count_kernel()) return;
  if (!own) own = std::make_unique<Block>();
  Block& block = *own;
  const uint32_t seed = schedule;
  block.random = seed == 0 ? 0 : std::minstd_rand(seed)() | 1u;
  block.launch = &launch;
  block.epochs.begin_launch();
  const auto recording = record(launch);
  const Running running(block);
  const dim3 extent = launch.blocks;
  for (const uint32_t number : order_of_blocks(extent.x * extent.y * extent.z, seed))
    block.run(launch, {number % extent.x, number / extent.x % extent.y, number / extent.x / extent.y});
  if (recording) recording->finish();
}

std::string describe(uint3 block, int thread) {
  return lockstep::concat("block (", block.x, ", ", block.y, ", ", block.z, ") thread ", thread);
}

std::string describe(Site site) {
  const std::string_view path = site.file;
  const size_t slash = path.rfind('/');
  return lockstep::concat(slash == std::string_view::npos ? path : path.substr(slash + 1), ":", site.line);
}

std::string describe_running() {
  const Block& block = *running_block;
  return lockstep::concat("kernel ", function_name(block.launch->kernel), ", ",
                          describe(block.index, block.running->number));
}

}  // namespace emulator
