// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace lockstep {

/// Where to connect to: "host:port", "10.0.0.2:29400", "[fe80::1]:29400".
struct Endpoint {
  std::string host;  ///< a name or a number, without brackets
  int port = 0;

  /// UserError naming the text if it is none; without a port it has `default_port` (-1: an error).
  static Endpoint parse(const std::string& text, int default_port = -1);
  std::string text() const;
};

/// A socket's address as the system calls want it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  /// Number and port.
  Endpoint endpoint() const;
};

/// Every TCP address of a name or a number. Throws Error that names it.
std::vector<SocketAddress> resolve(const Endpoint& endpoint);

}  // namespace lockstep
