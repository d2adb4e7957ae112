// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/addresses.h"
#include "core/descriptor.h"

namespace lockstep {

/// A TCP socket that accepts connections, for as long as it lives.
class ListeningSocket {
 public:
  /// Throws Error saying why it cannot be had: the name is unknown, the address another machine's, the port
  /// taken.
  explicit ListeningSocket(const Endpoint& address);

  /// With the port that it got.
  const Endpoint& address() const { return address_; }

 private:
  Descriptor socket_;
  Endpoint address_;
};

/// Why no connection comes about within some seconds; empty if one did.
std::string try_to_connect(const Endpoint& address, double seconds);

/// The numeric addresses of a host name, each once; empty if it is unknown.
std::vector<std::string> addresses_of(const std::string& host);

/// The numeric addresses of this machine's interfaces that others may reach: no loopback, no link-local.
std::vector<std::string> own_addresses();

bool is_loopback(const std::string& numeric_address);

}  // namespace lockstep
