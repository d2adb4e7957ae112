// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/job/job.h"
#include "step/passes.h"

namespace lockstep {

/// A launch of a step, in the order of the queues.
struct StepLaunch {
  Part part = Part::rest;
  std::string label;   ///< what it computes, without the layer's number
  std::string kernel;  ///< name of the kernel without its parameters
  Cost cost = {};
  bool is_in_graph = false;
  bool is_of_library = false;  ///< launched by cuBLASLt itself
};

/// Returns the launches of a replayed step on an H100. The training's own host code runs on one emulated GPU
/// that executes nothing. So sizes are those of the configuration, and memory costs nothing.
std::vector<StepLaunch> record_step(const Job& job);

}  // namespace lockstep
