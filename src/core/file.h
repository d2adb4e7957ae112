// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/core/error.h"

namespace lockstep {

/// A file that appears at its path when it is complete. Until then it has no name, so that a killed process
/// leaves nothing behind. A file system without nameless files shows it as PATH.PID-NUMBER-NUMBER.tmp. Throws
/// Error with the path and the reason.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Returns a path by which this process can open the file before it is complete.
  std::string path_now() const;
  void clear();
  void write(int64_t begin, std::span<const std::byte> bytes);
  /// Syncs the file and puts it at its path. A file that is there is replaced.
  void publish();
  /// Syncs the file and puts it at its path. If a file is there, it stays, and the result is false.
  bool publish_if_absent();

 private:
  void name();
  [[noreturn]] void fail() const;

  std::string path_, beside_;
  int file_ = -1;  ///< descriptor
};

/// Writes a whole file so that a crash leaves either the old or the new one: see NewFile.
void write_file(const std::string& path, std::string_view bytes);

/// Returns the contents of a file, or nothing if it cannot be read.
std::optional<std::string> read_file(const std::string& path);
/// Returns the contents of a file that the user named. Throws UserError with the path, and the `option` that
/// had it, if the file cannot be read.
std::string read_named_file(const std::string& path, const std::string& option = "");

/// Throws Error if the condition fails and the system's error may pass, such as a full or failing disk, a
/// lack of memory or a lost file server. Throws UserError for any other.
void require_of_system(Condition condition, int error, const std::string& message);

/// Maps a file of `bytes` that other processes map, too. With `create` a new file replaces an older one, but
/// not in processes that mapped it. Without `create` the file must exist. Throws Error with path and reason.
std::shared_ptr<std::byte> map_file(const std::string& path, size_t bytes, bool create);

/// Returns the folder for rebuildable data: lockstep in XDG_CACHE_HOME or ~/.cache; empty if there is none.
std::string cache_folder();

/// Returns the path with a leading ~ or ~/ replaced by HOME. A shell does not do that after a "=". Throws
/// UserError, which begins with `what`, for another user's ~name and if HOME is not set.
std::string expanded_path(const std::string& path, const std::string& what);

/// Returns the path of an executable program, looked up in PATH unless it has a slash; empty: none.
std::string find_program(const std::string& name);

/// Returns TMPDIR, else /tmp. Throws UserError if it is not a folder.
std::string temporary_folder();
/// Makes a new folder `<name>-XXXXXX` in temporary_folder() and returns its path. Throws Error.
std::string make_temporary_folder(const std::string& name);

/// Makes the names in a directory durable. Throws Error.
void sync_directory(const std::string& path);

}  // namespace lockstep
