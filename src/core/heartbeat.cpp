// SPDX-License-Identifier: Apache-2.0
#include "core/heartbeat.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "core/log.h"

namespace lockstep {
namespace {

std::shared_ptr<HeartbeatPage> own_page() {
  const char* path = std::getenv("LOCKSTEP_HEARTBEAT");
  if (path == nullptr || *path == '\0') return std::make_shared<HeartbeatPage>();
  try {
    return map_heartbeat(path, false);
  } catch (const Error& failure) {
    log_warning(concat(failure.what(), "; nobody will notice if this rank is stuck"));
    return std::make_shared<HeartbeatPage>();
  }
}

}  // namespace

std::shared_ptr<HeartbeatPage> map_heartbeat(const std::string& path, bool create) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0), 0600);
  // Reserved now, so that a full disk is an error here and no signal later.
  const int problem = file < 0 ? errno : create ? ::posix_fallocate(file, 0, sizeof(HeartbeatPage)) : 0;
  const bool is_whole = file >= 0 && ::lseek(file, 0, SEEK_END) >= static_cast<off_t>(sizeof(HeartbeatPage));
  void* memory = problem == 0 && is_whole
                     ? ::mmap(nullptr, sizeof(HeartbeatPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
  const std::string reason = problem ? std::strerror(problem) : is_whole ? std::strerror(errno) : "it is cut";
  if (file >= 0) ::close(file);
  expect(memory != MAP_FAILED, "cannot map the heartbeat ", path, ": ", reason);
  auto* page = create ? new (memory) HeartbeatPage : static_cast<HeartbeatPage*>(memory);
  return {page, [](HeartbeatPage* mapped) { ::munmap(mapped, sizeof(HeartbeatPage)); }};
}

HeartbeatPage& heartbeat() {
  // Never taken down: a rank that ends in any way may still tell why.
  static const auto* page = new std::shared_ptr<HeartbeatPage>(own_page());
  return **page;
}

void beat(const char* phase) {
  HeartbeatPage& page = heartbeat();
  if (std::strncmp(page.phase, phase, sizeof(page.phase) - 1) != 0)
    std::strncpy(page.phase, phase, sizeof(page.phase) - 1);
  page.beats.fetch_add(1, std::memory_order_relaxed);
}

void tell_failure(const std::string& message) {
  HeartbeatPage& page = heartbeat();
  if (page.failure[0] == '\0') std::strncpy(page.failure, message.c_str(), sizeof(page.failure) - 1);
}

}  // namespace lockstep
