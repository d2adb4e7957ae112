// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "config/config.h"

namespace lockstep {

/// The learning rate of each step, counted from 0, as train.schedule and its keys say. train.decay_steps must
/// be settled.
std::function<double(int64_t)> schedule_of(const TrainConfig& train);

}  // namespace lockstep
