// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <sys/socket.h>
#include <sys/types.h>

namespace lockstep {

/// Accepts a connection as accept4() does, but only from a process of this process's own user on this host
/// that sends something within four seconds. Otherwise closes it and returns -1 with errno ECONNABORTED.
///
/// The PMIx library listens on a port of the loopback address. Its only thread reads each connection. It
/// accepts the user that the other side claims to be. So a few packets of any user of this host could stop or
/// end it. The program lockrun_host defines accept() by this function, and the library calls that.
int accept_from_own_user(int listener, sockaddr* address, socklen_t* size, int flags);

/// Returns the user whose process on this host has the other end of a TCP connection. Returns nothing if
/// there is no such process, or the kernel does not tell.
std::optional<uid_t> peer_user(int connection);

/// Returns the same from the list of all connections. peer_user() reads it if the kernel cannot answer about
/// one connection.
std::optional<uid_t> listed_peer_user(int connection);

}  // namespace lockstep
