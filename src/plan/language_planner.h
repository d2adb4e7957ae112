// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"
#include "plan/memory_advice.h"
#include "train/language_model.h"

namespace lockstep {

/// Plans trainings like this one on that data, to which it keeps a reference. All ranks call it.
Planner language_planner(const Config& config, const World& world, const LanguageData& data);

}  // namespace lockstep
