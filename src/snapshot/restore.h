// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "parameters/placed_tensors.h"
#include "snapshot/stored_snapshot.h"

namespace lockstep {

/// Loads a snapshot's values, and its states if `with_states` and it has any, into `tensors`. Each rank reads
/// what it holds if every rank can read the files. Otherwise rank 0 reads them once and broadcasts each
/// piece. Besides its tensors a rank holds at most one piece. All ranks call it. All throw the UserError
/// naming what is damaged, missing or of another shape. Some values are overwritten by then.
void restore(const StoredSnapshot& snapshot, const World& world, PlacedTensors& tensors,
             bool with_states = true);

}  // namespace lockstep
