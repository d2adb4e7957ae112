// SPDX-License-Identifier: Apache-2.0
#include "train/request_votes.h"

#include <cmath>
#include <utility>

#include "comm/stop_request.h"
#include "core/error.h"
#include "core/heartbeat.h"
#include "core/stream.h"

namespace lockstep {

std::string RequestVotes::cast(bool wants_snapshot, double step_seconds) {
  if (wants_snapshot != std::exchange(has_asked_for_snapshot_, wants_snapshot))
    data_parallel_.vote(Vote::snapshot, wants_snapshot);
  if (!stop_was_requested() || std::exchange(has_asked_to_stop_, true)) return "";
  data_parallel_.vote(Vote::stop);
  // On a GPU the next step has started before the votes of this step are read.
  const double seconds = step_seconds * (device_of(current_stream()) == Device::cuda ? 3.0 : 1.0);
  const bool is_long = seconds > 2.0;
  const bool is_alone = world_.size() == 1 && !is_supervised();
  return concat("asked to stop: the current step is finished and saved first",
                is_long ? concat(", which takes ", std::llround(seconds), " s") : "",
                is_alone ? "; Ctrl-C again ends at once" : "");
}

}  // namespace lockstep
