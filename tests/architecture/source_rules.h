// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::architecture {

/// One rule broken at one place. line is 0 where the whole file is meant.
struct Violation {
  std::string file;
  int line = 0;
  std::string message;
};
std::ostream& operator<<(std::ostream& out, const Violation& violation);

/// A file of the repository: its path from the root, with '/', and its lines.
struct SourceFile {
  std::string path;
  std::vector<std::string> lines;
};

/// Every C++ or CUDA file below the folder, in order of path, which is relative to root.
std::vector<SourceFile> cpp_files(const std::filesystem::path& root, const std::string& folder);

/// Includes: arrows between rooms point down, a third-party header is used only where it lives and in no
/// header of src/, and every quoted include is rooted at src/ and exists (asked of `root`).
std::vector<Violation> check_includes(const SourceFile& file, const std::filesystem::path& root);

/// First line, length, and words that have no place in the library.
std::vector<Violation> check_text(const SourceFile& file);

/// No room of src/ but kernels/ has more than 3000 lines of .h and .cpp.
std::vector<Violation> check_rooms(const std::vector<SourceFile>& files);

/// At most two files of dist/ know MPI.
std::vector<Violation> check_mpi_files(const std::vector<SourceFile>& files);

/// Every path in backticks of a Markdown page exists: `src/...` and other top-level folders from the root,
/// `kernels/...` and other rooms from src/. With * or <name> in it, the folder before it must exist.
std::vector<Violation> check_paths(const SourceFile& page, const std::filesystem::path& root);

/// The lines of a file, read whole.
SourceFile read_file(const std::filesystem::path& root, const std::string& path);

}  // namespace lockstep::architecture
