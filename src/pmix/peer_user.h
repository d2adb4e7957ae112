// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <sys/socket.h>
#include <sys/types.h>

namespace lockstep {

/// Returns the user whose process on this host has the other end of a TCP connection. Returns nothing if
/// there is no such process, or the kernel does not tell.
std::optional<uid_t> peer_user(int connection);

/// Returns the same from the list of all connections. peer_user() reads it if the kernel cannot answer about
/// one connection.
std::optional<uid_t> listed_peer_user(int connection);

}  // namespace lockstep
