// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Writes a whole file so that a crash leaves either the old one or the new one: beside it, synced, renamed.
/// Throws Error with the path and the reason.
void write_file(const std::string& path, std::string_view bytes);
/// The same for contents that lie in several places of memory.
void write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);
/// The same where there is no file yet: one that is there stays as it is, and this returns false.
bool write_absent_file(const std::string& path, std::span<const std::span<const std::byte>> pieces);

/// A file of `bytes` in memory which other processes map, too: a new one in the place of an older one, which
/// whoever has mapped it keeps (`create`), or one that is there. Throws Error with the path and the reason.
std::shared_ptr<std::byte> map_file(const std::string& path, size_t bytes, bool create);

/// A file as it is, for reading alone, and its bytes; null if there is none, or it is empty.
struct MappedFile {
  std::shared_ptr<const std::byte> memory;
  int64_t bytes = 0;
};
MappedFile map_to_read(const std::string& path);

/// Where what can be made again is kept: lockstep in XDG_CACHE_HOME or ~/.cache; empty if neither is set.
std::string cache_folder();

/// The path of a program that can be started, looked up in PATH unless it has a slash; empty: none.
std::string find_program(const std::string& name);

/// How to type the program that lies beside this one: its bare name where PATH leads to it, else a path.
std::string program_beside(const std::string& name);

/// Makes a new folder <name>-XXXXXX below TMPDIR (else /tmp) and returns its path. Throws Error.
std::string make_temporary_folder(const std::string& name);

/// Makes the names in a directory durable. Throws Error.
void sync_directory(const std::string& path);

}  // namespace lockstep
