// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"

namespace lockstep {

/// Floating-point operations per second that this thread's core reaches in a loop of independent fused
/// multiply-adds held in registers: the ceiling that kernels are measured against. Takes about 20 ms.
double measure_peak_flops();

/// The model of this machine's processor as /proc/cpuinfo names it; the instruction set where it does not.
std::string processor_name();

/// The ceiling of all ranks together; 0 where it is not known.
double peak_flops(const Config& config, const World& world);

/// Where one rank computes.
struct RankDevice {
  std::string host;
  std::string processor;  ///< its model, as /proc/cpuinfo names it
  std::string gpu;        ///< its model; empty where the rank computes on the processor
  std::string gpu_id;     ///< the beginning of its UUID, as nvidia-smi -L prints it
};

/// The places in the order of ranks as lines for a person, one for each host and model: "ranks 0-3 on node1:
/// NVIDIA H200 (GPU-1b2c3d4e ...)".
std::vector<std::string> rank_table(const std::vector<RankDevice>& places);

/// What a person should know if not all processors are of one model; empty if they are.
std::string mixed_processors(const std::vector<RankDevice>& places);

/// Where every rank is, on all of them. All ranks call it.
std::vector<RankDevice> gather_places(const World& world);

/// Rank 0 prints the table and the warning, if there are other ranks. All ranks call it; each says where it
/// is.
void print_rank_table(const World& world);

}  // namespace lockstep
