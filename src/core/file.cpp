// SPDX-License-Identifier: Apache-2.0
#include "core/file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

#include "core/descriptor.h"
#include "core/environment.h"
#include "core/error.h"
#include "core/host.h"

namespace lockstep {
namespace {

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

/// Writes a file next to `path`, under a name that is unique across hosts, processes and threads. Syncs it
/// and calls publish(name), which returns whether it succeeded. Then removes the name.
template <class Publish>
void write_beside(const std::string& path, std::span<const std::span<const std::byte>> pieces,
                  Publish publish) {
  static std::atomic<int64_t> count = 0;
  const std::string beside = concat(path, ".", process_mark(), "-", count++, ".tmp");
  const Descriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  expect(bool(file), "cannot write ", path, ": ", std::strerror(errno));
  const auto write_piece = [&](std::span<const std::byte> piece) { return write_all(file.get(), piece); };
  const bool is_done =
      std::ranges::all_of(pieces, write_piece) && ::fsync(file.get()) == 0 && publish(beside.c_str());
  const std::string problem = std::strerror(errno);
  ::unlink(beside.c_str());
  expect(is_done, "cannot write ", path, ": ", problem);
}

}  // namespace

void write_file(const std::string& path, std::string_view bytes) {
  const std::array pieces = {std::as_bytes(std::span(bytes))};
  write_file(path, pieces);
}

void write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  write_beside(path, pieces, [&](const char* beside) { return ::rename(beside, path.c_str()) == 0; });
}

bool write_absent_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  bool is_there = false;
  write_beside(path, pieces, [&](const char* beside) {
    if (::link(beside, path.c_str()) == 0) return true;
    // Some file systems do not support links.
    if (errno != EEXIST && ::renameat2(AT_FDCWD, beside, AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0)
      return true;
    is_there = errno == EEXIST;
    return is_there;
  });
  return !is_there;
}

std::shared_ptr<std::byte> map_file(const std::string& path, size_t bytes, bool create) {
  // Truncating a file that a process of an earlier run still has mapped would kill that process.
  if (create) ::unlink(path.c_str());
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0644));
  const auto size = static_cast<off_t>(bytes);
  // Space is reserved now, so that a full disk is an error here instead of a signal later.
  const int problem = !file ? errno : create ? ::posix_fallocate(file.get(), 0, size) : 0;
  const bool is_whole = file && ::lseek(file.get(), 0, SEEK_END) >= size;
  void* memory = problem == 0 && is_whole
                     ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0)
                     : MAP_FAILED;
  const std::string reason = std::strerror(problem ? problem : errno);
  expect(memory != MAP_FAILED, "cannot map ", path, ": ", problem || is_whole ? reason : "it is truncated");
  return {static_cast<std::byte*>(memory), [bytes](std::byte* mapped) { ::munmap(mapped, bytes); }};
}

MappedFile map_to_read(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const off_t end = file ? ::lseek(file.get(), 0, SEEK_END) : 0;
  if (end <= 0) return {};
  const auto bytes = static_cast<size_t>(end);
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return {};
  return {.memory = {static_cast<const std::byte*>(memory),
                     [memory, bytes](const std::byte*) { ::munmap(memory, bytes); }},
          .bytes = end};
}

std::string cache_folder() {
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) return cache + "/lockstep";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/lockstep";
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = concat(folder.empty() ? "." : folder, "/", name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string program_beside(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ignored).parent_path() / name;
  if (fs::equivalent(beside, find_program(name), ignored)) return name;
  const fs::path nearer = beside.lexically_proximate(fs::current_path(ignored));
  return (*nearer.begin() == ".." ? beside : nearer).string();
}

std::string make_temporary_folder(const std::string& name) {
  std::string path = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
  const bool is_made = ::mkdtemp(path.data()) != nullptr;
  expect(is_made, "cannot make ", path, ": ", std::strerror(errno));
  return path;
}

void sync_directory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool synced = directory && ::fsync(directory.get()) == 0;
  expect(synced, "cannot sync the directory ", path, ": ", std::strerror(errno));
}

}  // namespace lockstep
