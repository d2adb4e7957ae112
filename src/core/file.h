// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Writes a whole file so that a crash leaves either the old or the new one. It is written under another
/// name, synced and renamed. Throws Error with the path and the reason.
void write_file(const std::string& path, std::string_view bytes);
/// Writes a whole file like write_file() from several pieces of memory.
void write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);
/// Writes a whole file unless one exists. Leaves an existing file unchanged and returns false.
bool write_absent_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);

/// Maps a file of `bytes` that other processes map, too. With `create` a new file replaces an older one,
/// which processes that have mapped it keep. Without it the file must exist. Throws Error with path and
/// reason.
std::shared_ptr<std::byte> map_file(const std::string& path, size_t bytes, bool create);

/// A read-only mapping of a file, and its size. `memory` is null if the file is missing or empty.
struct MappedFile {
  std::shared_ptr<const std::byte> memory;
  int64_t bytes = 0;
};
MappedFile map_to_read(const std::string& path);

/// Returns the folder for rebuildable data: lockstep in XDG_CACHE_HOME or ~/.cache; empty if neither is set.
std::string cache_folder();

/// Returns the path of an executable program, looked up in PATH unless it has a slash; empty: none.
std::string find_program(const std::string& name);

/// Returns the command for a program in this one's folder: its bare name if PATH leads to it, else a path.
std::string program_beside(const std::string& name);

/// Makes a new folder <name>-XXXXXX below TMPDIR (else /tmp) and returns its path. Throws Error.
std::string make_temporary_folder(const std::string& name);

/// Makes the names in a directory durable. Throws Error.
void sync_directory(const std::string& path);

}  // namespace lockstep
