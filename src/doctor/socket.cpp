// SPDX-License-Identifier: Apache-2.0
#include "doctor/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>

#include "core/error.h"
#include "core/interfaces.h"

namespace lockstep {
namespace {

/// Why a connection that is being made does not come about; empty if it does.
std::string wait_for_connection(int descriptor, double seconds) {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (::poll(&waiting, 1, static_cast<int>(seconds * 1e3)) == 0)
    return concat("no answer within ", seconds, " s");
  int problem = 0;
  socklen_t length = sizeof(problem);
  ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &length);
  return problem ? std::strerror(problem) : "";
}

}  // namespace

ListeningSocket::ListeningSocket(const Endpoint& address) {
  const SocketAddress wanted = resolve(address).at(0);
  socket_ = Descriptor(::socket(wanted.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  expect(bool(socket_), address.text(), ": ", std::strerror(errno));
  const int yes = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool listens =
      ::bind(socket_.get(), wanted.get(), wanted.size) == 0 && ::listen(socket_.get(), 64) == 0;
  expect(listens, address.text(), ": ", std::strerror(errno));
  address_ = {.host = address.host, .port = bound_address(socket_.get()).endpoint().port};
}

std::string try_to_connect(const Endpoint& address, double seconds) {
  try {
    const SocketAddress peer = resolve(address).at(0);
    const Descriptor socket(::socket(peer.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) return std::strerror(errno);
    if (::connect(socket.get(), peer.get(), peer.size) == 0) return "";
    return errno == EINPROGRESS ? wait_for_connection(socket.get(), seconds) : std::strerror(errno);
  } catch (const Error& unknown) {
    return unknown.what();
  }
}

std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  try {
    for (const SocketAddress& address : resolve({.host = host, .port = 0})) {
      const std::string text = address.endpoint().host;
      if (std::find(addresses.begin(), addresses.end(), text) == addresses.end()) addresses.push_back(text);
    }
  } catch (const Error&) {
    return {};
  }
  return addresses;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  for (const InterfaceAddress& one : interface_addresses())
    if (one.shared) addresses.push_back(one.address);
  return addresses;
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

}  // namespace lockstep
