// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "net/addresses.h"

namespace lockstep {

/// One address of this host.
struct InterfaceAddress {
  std::string interface;  ///< "eth0"
  std::string address;    ///< the number
  int prefix_bits = 0;    ///< how much of it names the network
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
