// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <vector>

namespace lockstep {

/// An address to connect to: "host:port", "10.0.0.2:29400", "[fe80::1]:29400".
struct Endpoint {
  std::string host;  ///< a name or a numeric address, without brackets
  int port = 0;

  /// Parses an endpoint. A text without a port gets `default_port` (-1: an error). Throws UserError naming
  /// the text if it is not an endpoint.
  static Endpoint parse(const std::string& text, int default_port = -1);
  std::string text() const;
};

/// A socket's address in the form that system calls expect.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  /// Returns the numeric address and the port.
  Endpoint endpoint() const;
};

/// Returns every TCP address of a name or a numeric address. Throws Error that names it.
std::vector<SocketAddress> resolve(const Endpoint& endpoint);

/// One address of this host.
struct InterfaceAddress {
  std::string interface;  ///< "eth0"
  std::string address;    ///< the numeric address
  bool shared = false;    ///< other hosts can reach it: neither loopback nor link-local
};

/// Returns the addresses of this host's interfaces that are up.
std::vector<InterfaceAddress> interface_addresses();

/// Returns the addresses of this host that other hosts can reach.
std::vector<InterfaceAddress> shared_addresses();

/// Returns the first address of this host's interfaces that is one of `numbers`, or "".
std::string own_among(const std::vector<std::string>& numbers);

/// Returns whether an address means the same host everywhere. Returns false for loopback, "any" and
/// link-local addresses, because their meaning depends on the host that uses them.
bool is_shared(const SocketAddress& address);

/// Returns shared_addresses() as text for a message: "10.0.0.1 (eth0), fd00::1 (eth0)".
std::string describe_shared_addresses();

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

/// Returns the process that listens on a TCP port of this host: "train (pid 17)"; empty if it is not found.
std::string process_on_port(int port);

}  // namespace lockstep
