// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "config/config.h"
#include "train/trainer.h"

namespace lockstep {

/// Whether a name is what a pattern says, where * stands for any characters, also dots and none, and ? for
/// one.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Freezes the task's parameters that train.freeze names, and gives those that train.groups names their own
/// learning rate and weight decay; says so in the task's description. Throws UserError naming the entry that
/// is none or names no parameter.
void apply_parameter_rules(const TrainConfig& train, TrainingTask& task);

}  // namespace lockstep
