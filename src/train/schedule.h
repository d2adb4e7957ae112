// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "config/config.h"

namespace lockstep {

/// Returns a function from a step, counted from 0, to its learning rate. train.schedule and its keys define
/// it. The trainer must have replaced train.decay_steps = 0 by a number of steps.
std::function<double(int64_t)> schedule_of(const TrainConfig& train);

}  // namespace lockstep
