// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// Copies a snapshot's values into a model and its optimizer. Throws UserError naming a tensor that is
/// missing or has another shape.
void restore(const Snapshot& snapshot, const std::vector<NamedTensor>& parameters, Optimizer& optimizer);

}  // namespace lockstep
