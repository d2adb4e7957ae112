// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::architecture {

/// A violation of a rule. `line` is 0 if it concerns the whole file.
struct Violation {
  std::string file;
  int line = 0;
  std::string message;
};
std::ostream& operator<<(std::ostream& out, const Violation& violation);

/// A file of the repository: its path relative to the root, with '/', and its lines.
struct SourceFile {
  std::string path;
  std::vector<std::string> lines;
};

/// Reads every C++ and CUDA file below the folder, sorted by path. `folder` is relative to `root`.
std::vector<SourceFile> cpp_files(const std::filesystem::path& root, const std::string& folder);

/// Checks the includes of a file. A room includes only the rooms it may see. A third-party header is included
/// only in its library's folders and in no header of src/. A quoted include is relative to src/ and exists
/// below `root`.
std::vector<Violation> check_includes(const SourceFile& file, const std::filesystem::path& root);

/// Checks the first line, the length and forbidden words.
std::vector<Violation> check_text(const SourceFile& file);

/// Checks that a room of src/ has at most 3000 lines of .h and .cpp files. kernels/ is excluded.
std::vector<Violation> check_rooms(const std::vector<SourceFile>& files);

/// Checks that at most two of the files include mpi.h.
std::vector<Violation> check_mpi_files(const std::vector<SourceFile>& files);

/// Checks that each path in backticks of a Markdown page exists. `src/...` and other top-level folders are
/// relative to the root; `kernels/...` and other rooms to src/. For a path with * or <name> the folder before
/// it must exist.
std::vector<Violation> check_paths(const SourceFile& page, const std::filesystem::path& root);

/// Reads a file. `path` is relative to `root`.
SourceFile read_file(const std::filesystem::path& root, const std::string& path);

}  // namespace lockstep::architecture
