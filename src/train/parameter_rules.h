// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "config/config.h"
#include "train/trainer.h"

namespace lockstep {

/// Returns whether a name matches. `*` is any number of characters, including dots and none; `?` is one.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Freezes the parameters that match train.freeze. Gives those that match train.groups their learning rate
/// and weight decay. Describes both in the task. Throws UserError naming a bad entry or one without a match.
void apply_parameter_rules(const TrainConfig& train, TrainingTask& task);

}  // namespace lockstep
