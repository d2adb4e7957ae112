// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "comm/world.h"

namespace lockstep {

/// From now on SIGTERM, SIGUSR1 and the first SIGINT ask this process to stop instead of ending it; the
/// second SIGINT ends it. A training that is asked, on any of its ranks, ends what it is at (a step, a batch
/// of a validation, a token of a sample), writes a snapshot and leaves with exit_stopped.
void listen_for_stop_requests();

/// Whether one of them has come.
bool stop_was_requested();

/// Outside of steps: true on all ranks if one of them was asked. All ranks call it at the same place.
bool any_rank_was_asked_to_stop(const World& world);

/// Runs `work` on rank 0 while the others wait. After each of its parts it calls go_on(), which says whether
/// it may do the next: false once a rank was asked to stop. Returns false on all ranks if one was.
bool on_first_rank_in_parts(const World& world,
                            const std::function<void(const std::function<bool()>& go_on)>& work);
/// The same where all ranks run it, in equally many parts.
bool on_all_ranks_in_parts(const World& world,
                           const std::function<void(const std::function<bool()>& go_on)>& work);

}  // namespace lockstep
