// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "core/error.h"

namespace lockstep {

/// A process that writes to a run's folder or bucket.
struct Owner {
  std::string run = {};    ///< equal for all starts of a run by a supervisor or a batch system
  int64_t generation = 0;  ///< number of the start; later starts have higher ones
  std::string host = {};
  std::string boot_id = {};  ///< distinguishes hosts, also those of the same name
  int process = 0;
  std::string since = {};  ///< when it took the folder, UTC

  /// Returns this process as an owner. run and generation are LOCKSTEP_RUN_ID and LOCKSTEP_GENERATION if
  /// lockrun set them. Otherwise they are the Slurm job and its count of requeues, or a new run.
  static Owner this_process();
  /// Returns whether this is a later start of the same run.
  bool supersedes(const Owner& other) const { return run == other.run && generation > other.generation; }

  bool operator==(const Owner&) const = default;
};

/// Returns a line of JSON for the file or object that names an owner.
std::string text_of(const Owner& owner);
/// Returns the owner in such a text; nothing in an empty one. A text that cannot be read names an unknown
/// owner, because it may be in the middle of being written.
std::optional<Owner> owner_in(std::string_view text);
/// Returns an owner of whom nothing is known.
Owner unknown_owner();

/// A UserError because another run writes to a place. Its message names the host, process and start.
class OwnedByAnother : public UserError {
 public:
  OwnedByAnother(const std::string& key, const std::string& place, const Owner& owner);
};

/// Runs `take` until it does not throw OwnedByAnother any more, for at most `seconds`. Logs the owner each
/// minute. Throws StoppedBeforeStart if the start is asked to stop.
void wait_for_owner(double seconds, const std::function<void()>& take);

/// Calls `body` at each interval until it returns false or `over` is requested.
void repeat(const std::stop_token& over, double interval_seconds, const std::function<bool()>& body);

}  // namespace lockstep
