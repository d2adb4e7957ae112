// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/private_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

constexpr const char* prefix = "lockrun-";
constexpr const char* lock_name = "/lock";

bool is_own_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

/// Returns whether no process uses the folder. The lock file has this machine's id, because another machine
/// may share the parent, and its locks may not be seen here.
bool is_abandoned(const std::string& folder) {
  const Descriptor lock(::open((folder + lock_name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::string text(64, '\0');
  const ssize_t count = lock ? ::read(lock.get(), text.data(), text.size()) : -1;
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return !text.empty() && text == boot_id() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

std::string folder_of_shared_memory() {
  const char* usual = "/dev/shm";
  return ::access(usual, W_OK | X_OK) == 0 ? usual : temporary_folder();
}

}  // namespace

PrivateFolder::PrivateFolder(const std::string& parent) : path_(concat(parent, "/", prefix, "XXXXXX")) {
  remove_abandoned(parent);
  const bool is_made = ::mkdtemp(path_.data()) != nullptr;
  expect(is_made, "cannot make a folder in ", parent, ": ", std::strerror(errno));
  lock_ = Descriptor(
      ::open((path_ + lock_name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  // The id is written under the lock, so a folder without it is not taken for an abandoned one.
  const bool is_locked = lock_ && ::flock(lock_.get(), LOCK_EX) == 0;
  const std::string id = boot_id();
  if (is_locked) [[maybe_unused]]
    const ssize_t written = ::write(lock_.get(), id.data(), id.size());
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void PrivateFolder::remove_abandoned(const std::string& parent) {
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(parent, problem)) {
    const std::string path = entry.path().string();
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    if (is_own_folder(path) && is_abandoned(path)) std::filesystem::remove_all(path, problem);
  }
}

void AttemptFolders::remove_abandoned() {
  PrivateFolder::remove_abandoned(temporary_folder());
  PrivateFolder::remove_abandoned(folder_of_shared_memory());
}

AttemptFolders::AttemptFolders() : files(temporary_folder()), memory(folder_of_shared_memory()) {}

}  // namespace lockstep
