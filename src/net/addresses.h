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

/// One address of this host.
struct InterfaceAddress {
  std::string interface;  ///< "eth0"
  std::string address;    ///< the number
  std::string network;    ///< "10.0.0.0/24"
  bool shared = false;    ///< other hosts can reach it: neither loopback nor of one link only
};

/// The addresses of this host's interfaces that are up.
std::vector<InterfaceAddress> interface_addresses();

/// Those of them that others can reach.
std::vector<InterfaceAddress> shared_addresses();

/// The first of these numbers that is an address of this host, or "".
std::string own_among(const std::vector<std::string>& numbers);

/// False for loopback, "any" and link-local addresses: they mean another host wherever they are used.
bool is_shared(const SocketAddress& address);

/// shared_addresses() for a message: "10.0.0.1 (eth0), fd00::1 (eth0)".
std::string describe_shared_addresses();

/// The network of one of this host's addresses: "10.0.0.0/24". Throws Error if it is not this host's.
std::string network_of(const std::string& address);

/// The process that listens on a TCP port of this host: "train (pid 17)"; empty if it cannot be found.
std::string process_on_port(int port);

}  // namespace lockstep
