// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/core/descriptor.h"

namespace lockstep {

/// A new folder lockrun-XXXXXX for files of ranks. Only this user can read it. It is removed with the object.
/// If this process is killed, the next object in the same parent removes the folder: see remove_abandoned().
class PrivateFolder {
 public:
  /// Makes the folder below `parent`. Throws Error with the reason.
  explicit PrivateFolder(const std::string& parent);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }

  /// Removes the folders below `parent` that processes of this user and machine made and that no process has
  /// locked any more.
  static void remove_abandoned(const std::string& parent);

 private:
  std::string path_;
  Descriptor lock_;  ///< the kernel releases the lock when this process ends, however it ends
};

/// The private folders of an attempt's ranks on one node.
struct AttemptFolders {
  PrivateFolder files;   ///< below TMPDIR
  PrivateFolder memory;  ///< below /dev/shm; below TMPDIR if there is no /dev/shm

  AttemptFolders();
  /// Calls PrivateFolder::remove_abandoned() for both parents.
  static void remove_abandoned();
};

}  // namespace lockstep
