// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "config/config.h"
#include "train/trainer.h"

namespace lockstep {

/// Returns whether a name matches a pattern. `*` matches any number of characters, including dots and none.
/// `?` matches one character.
bool matches_pattern(std::string_view pattern, std::string_view name);

/// Freezes the parameters that match train.freeze. Gives those that match train.groups their own learning
/// rate and weight decay. Describes both in the task. Throws UserError naming a malformed or unmatched entry.
void apply_parameter_rules(const TrainConfig& train, TrainingTask& task);

}  // namespace lockstep
