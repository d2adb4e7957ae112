// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "lockstep/comm/world.h"

namespace lockstep {

/// Returns true on all ranks if any of them was asked to stop. For use outside of steps. All ranks call it at
/// the same place.
bool any_rank_was_asked_to_stop(const World& world);

/// Work that calls go_on() after each of its parts. It ends when that returns false, because a rank was asked
/// to stop.
using WorkInParts = std::function<void(const std::function<bool()>& go_on)>;
/// Runs `work` on rank 0 while the others wait. Returns false on all ranks if any was asked to stop.
bool on_first_rank_in_parts(const World& world, const WorkInParts& work);
/// Runs `work` on all ranks, in the same number of parts. Returns false on all if any was asked to stop.
bool on_all_ranks_in_parts(const World& world, const WorkInParts& work);

}  // namespace lockstep
