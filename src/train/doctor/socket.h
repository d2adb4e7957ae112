// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Host and port of "host:port", "[ipv6]:port" or "host" (port 0: the system chooses). Throws UserError.
struct Address {
  std::string host;
  int port = 0;

  static Address parse(const std::string& text);
  std::string text() const;
};

/// A TCP socket that accepts connections, for as long as it lives.
class ListeningSocket {
 public:
  /// Throws Error saying why it cannot be had: the name is unknown, the address another machine's, the port
  /// taken.
  explicit ListeningSocket(const Address& address);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  /// With the port that it got.
  const Address& address() const { return address_; }

 private:
  int descriptor_ = -1;
  Address address_;
};

/// Why no connection comes about within some seconds; empty if one did.
std::string try_to_connect(const Address& address, double seconds);

/// The numeric addresses of a host name, each once; empty if it is unknown.
std::vector<std::string> addresses_of(const std::string& host);

/// The numeric addresses of this machine's interfaces that others may reach: no loopback, no link-local.
std::vector<std::string> own_addresses();

bool is_loopback(const std::string& numeric_address);

}  // namespace lockstep
