// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "comm/world.h"
#include "snapshot/snapshot.h"
#include "tensor/optimizer.h"

namespace lockstep {

/// Brings a snapshot's values into a model and, unless there is none, its optimizer, on every rank: rank 0
/// reads the files once and hands on each piece, which is all that a rank holds of them besides the tensors.
/// All ranks call it, and all get the UserError that names what is damaged, missing or of another shape; some
/// values are overwritten by then. Those of format 1 come as linear weights [out, in] and are transposed.
void restore(const StoredSnapshot& snapshot, const World& world, const std::vector<NamedTensor>& parameters,
             Optimizer* optimizer);

}  // namespace lockstep
