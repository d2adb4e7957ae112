// SPDX-License-Identifier: Apache-2.0
#include "doctor/network_checks.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "doctor/socket.h"

namespace lockstep {
namespace {

constexpr double connect_seconds = 3.0;

/// Why nobody on this machine can connect to an address of its own, or no error; `used` is the address with
/// its port.
std::optional<std::string> try_port(const Endpoint& address, Endpoint& used) {
  try {
    const ListeningSocket socket(address);
    used = socket.address();
    const std::string problem = try_to_connect(used, connect_seconds);
    if (!problem.empty()) return concat(used.text(), " listens, but a connection to it fails: ", problem);
  } catch (const Error& problem) {
    return problem.what();
  }
  return std::nullopt;
}

}  // namespace

Finding check_host_name(const std::string& name) {
  const std::vector<std::string> addresses = addresses_of(name);
  const std::vector<std::string> own = own_addresses();
  const std::string advice = own.empty() ? "this machine has no address but loopback: it can only train alone"
                                         : concat("for several nodes, put it into /etc/hosts or DNS with ",
                                                  joined(own), ", or name nodes by these numbers");
  if (addresses.empty())
    return {"host name", Verdict::warning, concat(name, " is unknown to this machine"), advice};
  if (std::all_of(addresses.begin(), addresses.end(), is_loopback))
    return {"host name", Verdict::warning,
            concat(name, " is ", joined(addresses), ", where no other node can reach it"), advice};
  return {"host name", Verdict::ok, concat(name, " is ", joined(addresses))};
}

Finding check_port(const std::string& address) {
  Endpoint asked;
  if (address.empty()) {
    const std::vector<std::string> own = own_addresses();
    asked.host = own.empty() ? "127.0.0.1" : own.front();
  } else {
    asked = Endpoint::parse(address, 0);
  }
  Endpoint used = asked;
  if (const std::optional<std::string> problem = try_port(asked, used))
    return {
        "port", Verdict::problem, *problem,
        "choose an address of this machine and a free port (ss -ltnp says who has it), and let the firewall "
        "pass it"};
  return {"port", Verdict::ok, concat("listens on ", used.text(), " and reaches itself there")};
}

Finding check_ipv6() {
  Endpoint used{.host = "::1"};
  if (const std::optional<std::string> problem = try_port(used, used))
    return {"ipv6", Verdict::ok, concat("none here (", *problem, "): name nodes by IPv4 addresses")};
  return {"ipv6", Verdict::ok, "works"};
}

}  // namespace lockstep
