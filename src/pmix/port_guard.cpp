// SPDX-License-Identifier: Apache-2.0
#include "pmix/port_guard.h"

#include <cerrno>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pmix/peer_user.h"

namespace lockstep {
namespace {

/// Milliseconds within which a connection has to send something. The library would wait for 12 s.
constexpr int patience_ms = 4000;

bool is_welcome(int connection) {
  if (peer_user(connection) != ::geteuid()) return false;
  pollfd input{connection, POLLIN, 0};
  return ::poll(&input, 1, patience_ms) == 1;
}

}  // namespace

int accept_from_own_user(int listener, sockaddr* address, socklen_t* size, int flags) {
  // accept4() of the C library may be the one that calls this function.
  const auto connection = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (connection < 0 || is_welcome(connection)) return connection;
  ::close(connection);
  errno = ECONNABORTED;  // the library continues to listen
  return -1;
}

}  // namespace lockstep
