// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "core/descriptor.h"

namespace lockstep {

/// A process that writes to a run's folders.
struct Owner {
  std::string run = {};    ///< the same for all starts of a run by a supervisor or a batch system
  int64_t generation = 0;  ///< which of these starts
  std::string host = {};
  std::string boot_id = {};  ///< tells hosts apart, whatever they are called
  int process = 0;
  std::string since = {};  ///< when it took the folder, UTC

  /// LOCKSTEP_RUN_ID and LOCKSTEP_GENERATION as lockrun sets them, else the Slurm job and how often it was
  /// requeued, else a run of its own.
  static Owner this_process();
  /// True if this is a later start of the same run.
  bool supersedes(const Owner& other) const { return run == other.run && generation > other.generation; }
};

/// A folder that one run at a time writes to. Its file .owner says who, is locked (flock), and is touched all
/// the time: the lock decides, and where locks are missing or known to one host alone, whether the file is
/// still touched. A later start of the same run takes the folder from an earlier one that lingers.
class FolderOwner {
 public:
  static constexpr double patience_seconds = 5.0;

  /// Makes the folder and takes it. UserError naming `key` if it cannot be written, or if another run has it:
  /// then with the owner's host, process and start.
  /// `patience`: how many seconds an earlier start of the same run may hold the lock before the folder is
  /// taken from it, and how long a file whose lock says nothing is watched for a touch.
  FolderOwner(std::string key, std::string folder, Owner self = Owner::this_process(),
              double patience = patience_seconds);
  /// Gives it back.
  ~FolderOwner();
  FolderOwner(const FolderOwner&) = delete;
  FolderOwner& operator=(const FolderOwner&) = delete;

  /// Throws Error if the folder is no longer this process's: a later start has taken it, or it was moved
  /// away; or if that cannot be told.
  void check() const;
  /// Throws if it was not when last looked at, about a second ago, for the price of reading a number.
  void check_recently() const;
  /// How long it took to get, in seconds.
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
  [[noreturn]] void refuse(const Owner& owner) const;
  void touch_until(const std::stop_token& over);

  std::string key_;
  std::string folder_;
  std::string path_;
  Owner self_;
  double patience_;
  Descriptor file_;
  double waited_seconds_ = 0.0;
  bool lock_was_missing_ = false;
  std::atomic<bool> is_lost_{false};  ///< when it was last looked at
  std::jthread touching_;
};

}  // namespace lockstep
