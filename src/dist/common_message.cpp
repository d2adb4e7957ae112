// SPDX-License-Identifier: Apache-2.0
#include "dist/common_message.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {
namespace {

/// What the ranks of one launch have in common.
std::string launch_name() {
  if (const char* name = std::getenv("PMIX_NAMESPACE")) return name;
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* step = std::getenv("SLURM_STEP_ID");
  return job && step ? concat(job, ".", step) : concat(::getppid());
}

}  // namespace

bool claim_message(const std::string& message) {
  const size_t number = std::hash<std::string>()(launch_name() + "\n" + message);
  const std::string name = concat("lockstep message ", ::geteuid(), " ", number);
  // An address of Linux's abstract namespace: one process has it, and the kernel frees it when that ends.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // Left open on purpose: this process says it, as long as it lives.
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0 || errno != EADDRINUSE;
}

}  // namespace lockstep
