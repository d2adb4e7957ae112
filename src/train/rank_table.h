// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"

namespace lockstep {

/// The device of one rank.
struct RankDevice {
  std::string host;
  std::string processor;  ///< the processor's model, from /proc/cpuinfo
  std::string gpu;        ///< the GPU's model; empty if the rank uses the CPU
  std::string gpu_id;     ///< the beginning of the GPU's UUID, as in nvidia-smi -L
};

/// Describes the devices of all ranks, which are in the order of ranks. Returns a line for each host and
/// device model: "ranks 0-3 on node1: NVIDIA H200 (GPU-1b2c3d4e ...)".
std::vector<std::string> rank_table(const std::vector<RankDevice>& places);

/// Returns a warning if the ranks' processors are of different models; else an empty string.
std::string mixed_processors(const std::vector<RankDevice>& places);

/// Returns the devices of all ranks, on every rank. All ranks call it.
std::vector<RankDevice> gather_places(const World& world);

/// Describes this process: its rank, host, process id, restarts, device and version.
std::string describe_rank(const World& world, int64_t threads);

/// Logs rank_table() and mixed_processors() on rank 0, unless it is the only rank. All ranks call it.
void print_rank_table(const World& world);

}  // namespace lockstep
