// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "core/descriptor.h"
#include "store/owner.h"

namespace lockstep {

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
  bool touch();

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
