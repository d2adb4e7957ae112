// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"

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

/// Ownership of a folder that one run at a time writes to. The file .owner names the owner, is locked (flock)
/// and touched every second. The lock decides. If locks are missing or known to one host alone, a file that
/// is still touched has an owner. A later start of the same run takes the folder from an earlier one that
/// still runs.
class FolderOwner {
 public:
  static constexpr double patience_seconds = 5.0;

  /// Creates the folder and takes it. Throws UserError naming `key` if it cannot be written. If another run
  /// owns it, the error names the host, process and start of the owner. `patience`: seconds before the folder
  /// is taken from an earlier start of the same run that holds the lock. If the lock is not conclusive, the
  /// file is watched for a touch during these seconds.
  FolderOwner(std::string key, std::string folder, Owner self = Owner::this_process(),
              double patience = patience_seconds);
  /// Releases the folder.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  /// Throws Error if the folder no longer belongs to this process: a later start took it, or it was moved
  /// away. Also throws Error if this cannot be determined.
  void check() const;
  /// Calls check() if the check of about a second ago found the folder lost. Otherwise only reads a number.
  void check_recently() const;
  /// Returns how long it took to get the folder, in seconds.
  double waited_seconds() const { return waited_seconds_; }

 private:
  enum class Lock { taken, held, missing };
  enum class Possession { own, lost, unknown };

  void take();
  std::optional<Owner> try_to_take();
  Lock lock(int file);
  void make_own_file();
  Possession place_of(int file) const;
  bool is_touched_by_others() const;

  std::string key_;
  std::string folder_;
  std::string path_;
  Owner self_;
  double patience_;
  Descriptor file_;
  double waited_seconds_ = 0.0;
  bool lock_was_missing_ = false;
  std::atomic<bool> is_lost_{false};  ///< result of the last background check
  std::jthread touching_;
};

}  // namespace lockstep
