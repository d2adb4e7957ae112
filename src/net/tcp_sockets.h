// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace lockstep {

/// A TCP socket of this host, as the kernel lists it in /proc/net/tcp and /proc/net/tcp6.
struct TcpSocket {
  std::string local, remote;  ///< addresses as the kernel prints them, in hexadecimal: "0100007F"
  int local_port = 0, remote_port = 0;
  int state = 0;      ///< TCP_ESTABLISHED, TCP_LISTEN, ...
  uid_t user = 0;     ///< the user who made it
  std::string inode;  ///< "0": no process has it any more
};

/// Returns all TCP sockets of this host. Empty if the kernel has no such list.
std::vector<TcpSocket> tcp_sockets();

}  // namespace lockstep
