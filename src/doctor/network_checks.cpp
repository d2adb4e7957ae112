// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "doctor/doctor.h"
#include "net/addresses.h"
#include "net/socket.h"

namespace lockstep {
namespace {

/// Why nobody on this machine can connect to an address of its own, or no error; `used` is the address with
/// its port.
std::optional<std::string> try_port(const Endpoint& address, Endpoint& used) {
  try {
    const Socket socket = Socket::listen(address);
    used.port = socket.address().port;
    const std::string problem = try_to_connect(used);
    if (!problem.empty()) return concat(used.text(), " listens, but a connection to it fails: ", problem);
  } catch (const Error& problem) {
    return problem.what();
  }
  return std::nullopt;
}

}  // namespace

std::string try_to_connect(const Endpoint& address) {
  constexpr double connect_seconds = 3.0;
  try {
    Socket::connect(resolve(address).at(0), after(connect_seconds));
    return "";
  } catch (const Error& problem) {
    return problem.what();
  }
}

Finding check_host_name(const std::string& name) {
  const std::string advice = shared_addresses().empty()
                                 ? "this machine has no address but loopback: it can only train alone"
                                 : concat("for several nodes, put it into /etc/hosts or DNS with ",
                                          describe_shared_addresses(), ", or name nodes by these numbers");
  std::set<std::string> numbers;
  bool is_reachable = false;
  try {
    for (const SocketAddress& address : resolve({.host = name, .port = 0})) {
      numbers.insert(address.endpoint().host);
      is_reachable |= is_shared(address);
    }
  } catch (const Error&) {
    return {"host name", Verdict::warning, concat(name, " is unknown to this machine"), advice};
  }
  const std::string found = concat(name, " is ", joined(numbers));
  if (is_reachable) return {"host name", Verdict::ok, found};
  return {"host name", Verdict::warning, concat(found, ", where no other node can reach it"), advice};
}

Finding check_port(const std::string& address) {
  Endpoint asked;
  if (address.empty()) {
    const std::vector<InterfaceAddress> own = shared_addresses();
    asked.host = own.empty() ? "127.0.0.1" : own.front().address;
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
