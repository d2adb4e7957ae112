// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

namespace lockstep {

/// Accepts a connection as accept4() does, but only from a process of this process's own user on this host
/// that sends something within four seconds. Otherwise closes it and returns -1 with errno ECONNABORTED.
///
/// The PMIx library listens on a port of the loopback address. Its only thread reads each connection. It
/// accepts the user that the other side claims to be. So a few packets of any user of this host could stop or
/// end it. The program lockrun_host defines accept() by this function, and the library calls that.
int accept_from_own_user(int listener, sockaddr* address, socklen_t* size, int flags);

}  // namespace lockstep
