// SPDX-License-Identifier: Apache-2.0
// The PMIx library listens on a port of the loopback address. It reads what a connection sends on its only
// thread, and believes what the other side says about its user. A few packets of any user of this host could
// stop or end it. The library calls accept(), and the one that is defined here takes precedence over that of
// the C library. It accepts connections of this process's own user only.

#include <cerrno>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pmix/peer_user.h"

namespace {

/// Milliseconds within which a connection has to send something. The library would wait for it 12 s.
constexpr int patience_ms = 4000;

bool is_welcome(int connection) {
  if (lockstep::peer_user(connection) != ::geteuid()) return false;
  pollfd input{connection, POLLIN, 0};
  return ::poll(&input, 1, patience_ms) == 1;
}

int accept_from_own_user(int listener, sockaddr* address, socklen_t* size, int flags) {
  const auto connection = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (connection < 0 || is_welcome(connection)) return connection;
  ::close(connection);
  errno = ECONNABORTED;  // the library continues to listen
  return -1;
}

}  // namespace

extern "C" int accept(int listener, sockaddr* address, socklen_t* size) {
  return accept_from_own_user(listener, address, size, SOCK_CLOEXEC);
}

extern "C" int accept4(int listener, sockaddr* address, socklen_t* size, int flags) {
  return accept_from_own_user(listener, address, size, flags);
}
