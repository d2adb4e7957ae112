// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "doctor/finding.h"
#include "net/addresses.h"

namespace lockstep {

/// Why no connection comes about within three seconds; empty if one did.
std::string try_to_connect(const Endpoint& address);

/// Whether this host's name leads to an address that other nodes can use.
Finding check_host_name(const std::string& name);

/// Whether this process can listen on "host:port" and reach itself there; empty: on this host's first address
/// at a port that the system chooses.
Finding check_port(const std::string& address);

Finding check_ipv6();

}  // namespace lockstep
