// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"
#include "plan/memory_advice.h"
#include "train/language_model.h"

namespace lockstep {

/// Returns a planner for trainings like `config` on `data`, which it refers to. All ranks call it.
Planner language_planner(const Config& config, const World& world, const LanguageData& data);

}  // namespace lockstep
