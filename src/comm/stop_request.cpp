// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/stop_request.h"

#include <algorithm>
#include <vector>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/program/signals.h"

namespace lockstep {
namespace {

/// The words that ranks exchange between two parts of the work.
enum : char { no_request = 0, request = 1, at_end = 2 };

/// Returns the words of all ranks, in the order of ranks.
std::vector<char> exchange(const World& world) {
  return world.communicator().all_gather_value<char>(stop_was_requested() ? request : no_request);
}

bool holds_request(const std::vector<char>& words) { return std::ranges::count(words, request) > 0; }

}  // namespace

bool any_rank_was_asked_to_stop(const World& world) { return holds_request(exchange(world)); }

bool on_all_ranks_in_parts(const World& world, const WorkInParts& work) {
  bool is_asked = false;
  work([&] {
    report_progress("writing");
    is_asked |= holds_request(exchange(world));
    return !is_asked;
  });
  return !is_asked;
}

bool on_first_rank_in_parts(const World& world, const WorkInParts& work) {
  bool is_asked = false;
  if (world.is_first()) {
    is_asked = !on_all_ranks_in_parts(world, work);  // the other ranks answer below
    is_asked |= holds_request(world.communicator().all_gather_value<char>(at_end));
  } else {
    for (std::vector<char> words; words.empty() || words.front() != at_end;) {
      report_progress("waiting");
      words = exchange(world);
      is_asked |= holds_request(words);
    }
  }
  // All ranks have received the same words, so they return the same result.
  return !is_asked;
}

}  // namespace lockstep
