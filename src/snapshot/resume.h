// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "snapshot/snapshot.h"
#include "tensor/optimizer.h"

namespace lockstep {

/// Copies a snapshot's values into an optimizer and its parameters. Throws UserError naming a tensor that is
/// missing or has another shape.
void restore(const Snapshot& snapshot, Optimizer& optimizer);

}  // namespace lockstep
