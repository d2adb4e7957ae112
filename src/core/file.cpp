// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"

namespace lockstep {

// The name beside the path is unique across hosts, processes and threads.
NewFile::NewFile(std::string path) : path_(std::move(path)) {
  static std::atomic<int64_t> count = 0;
  beside_ = concat(path_, ".", process_mark(), "-", count++, ".tmp");
  const std::string folder = path_.substr(0, path_.rfind('/') + 1);
  if (::access("/proc/self/fd", X_OK) == 0)
    file_ = ::open(folder.empty() ? "." : folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
  if (file_ < 0) file_ = ::open(beside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) fail();
}

NewFile::~NewFile() {
  ::unlink(beside_.c_str());
  ::close(file_);
}

std::string NewFile::path_now() const {
  return ::access(beside_.c_str(), F_OK) == 0 ? beside_ : concat("/proc/self/fd/", file_);
}

void NewFile::clear() {
  if (::ftruncate(file_, 0) != 0) fail();
}

void NewFile::write(int64_t begin, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), begin);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail();
    begin += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

/// Syncs the file and gives it the name beside its path, from where a rename can replace another file.
void NewFile::name() {
  const auto is_named = [&] {
    return ::access(beside_.c_str(), F_OK) == 0 ||
           ::linkat(AT_FDCWD, path_now().c_str(), AT_FDCWD, beside_.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (::fsync(file_) != 0 || !is_named()) fail();
}

void NewFile::publish() {
  name();
  if (::rename(beside_.c_str(), path_.c_str()) != 0) fail();
}

bool NewFile::publish_if_absent() {
  name();
  if (::link(beside_.c_str(), path_.c_str()) == 0) return true;
  // Some file systems do not support links.
  if (errno != EEXIST &&
      ::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0)
    return true;
  if (errno != EEXIST) fail();
  return false;
}

void NewFile::fail() const { throw Error(concat("cannot write ", path_, ": ", std::strerror(errno))); }

void write_file(const std::string& path, std::string_view bytes) {
  NewFile file(path);
  file.write(0, std::as_bytes(std::span(bytes)));
  file.publish();
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  file >> std::noskipws >> text.rdbuf();
  // Only a read that succeeds ends at the end of the file. Iterators would throw without the path.
  return file.eof() ? std::optional(std::move(text).str()) : std::nullopt;
}

std::string read_named_file(const std::string& path, const std::string& option) {
  std::optional<std::string> text = read_file(path);
  require(text.has_value(), option, option.empty() ? "" : " ", path,
          ::access(path.c_str(), F_OK) == 0 ? " cannot be read" : " does not exist");
  return *std::move(text);
}

OpenedFile open_own_file(const std::string& path, int flags) {
  // In a shared folder a link could lead anywhere, and a FIFO would block.
  Descriptor file(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  struct stat status {};
  const int error = file && ::fstat(file.get(), &status) == 0 ? 0 : errno;
  // O_NOFOLLOW reports a link by ELOOP, and O_NONBLOCK a FIFO without a reader by ENXIO.
  if (error == ELOOP) return {.file = {}, .error = EINVAL, .reason = "it is a symbolic link"};
  if (error == ENXIO || (error == 0 && !S_ISREG(status.st_mode)))
    return {.file = {}, .error = EINVAL, .reason = "it is not a regular file"};
  if (error != 0) return {.file = {}, .error = error, .reason = std::strerror(error)};
  return {.file = std::move(file)};
}

void require_of_system(Condition condition, int error, const std::string& message) {
  constexpr std::array passing = {ENOSPC,    EDQUOT,   EIO,       ENOMEM,       EMFILE,      ENFILE,  EAGAIN,
                                  EINTR,     ESTALE,   ENOLCK,    ETIMEDOUT,    ECONNRESET,  EBUSY,   ENODEV,
                                  EREMOTEIO, ENOTCONN, EHOSTDOWN, EHOSTUNREACH, ENETUNREACH, ENETDOWN};
  std::ranges::count(passing, error) > 0 ? expect(condition, message) : require(condition, message);
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

std::string cache_folder() try {
  const std::string cache = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (cache.empty()) return home.empty() ? "" : home + "/.cache/lockstep";
  return expanded_path(cache, "XDG_CACHE_HOME: ") + "/lockstep";
} catch (const UserError& problem) {
  log_warning(concat(problem.what(), "; nothing is kept in a cache"));
  return "";
}

std::string expanded_path(const std::string& path, const std::string& what) {
  if (!path.starts_with('~')) return path;
  const std::string home = environment("HOME");
  const bool is_own = path.size() == 1 || path[1] == '/';
  require(is_own && !home.empty(), what, path, is_own ? " needs HOME, which is not set" : " begins with ~",
          "; write the path in full, or ./", path, " for one of that name");
  return home + path.substr(1);
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  std::istringstream folders(environment_if_set("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = concat(folder.empty() ? "." : folder, "/", name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string temporary_folder() {
  std::error_code problem;
  const std::string folder = std::filesystem::temp_directory_path(problem).string();
  require(!problem, "TMPDIR = ", environment("TMPDIR"), ": ", problem.message(),
          "; set it to a folder for temporary files");
  return folder;
}

std::string make_temporary_folder(const std::string& name) {
  std::string path = concat(temporary_folder(), "/", name, "-XXXXXX");
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
