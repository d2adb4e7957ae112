// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace lockstep {
namespace {

/// The limit that this process asks for. It is low: some programs close every descriptor up to the limit.
constexpr rlim_t plenty = 65536;

rlimit limits() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

Socket Socket::make(const SocketAddress& address) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  expect(bool(socket), "cannot make a socket: ", std::strerror(errno));
  return socket;
}

Socket Socket::listen(const Endpoint& address) {
  const SocketAddress wanted = resolve(address).at(0);
  Socket socket = make(wanted);
  const int on = 1;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (wanted.family() == AF_INET6)
    ::setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const bool listens = ::bind(socket.descriptor(), wanted.get(), wanted.size) == 0 &&
                       ::listen(socket.descriptor(), SOMAXCONN) == 0;
  require(listens, "cannot listen on ", wanted.endpoint().text(), ": ", std::strerror(errno));
  return socket;
}

Socket Socket::connect(const SocketAddress& address, Clock::time_point deadline,
                       std::string_view own_address) {
  Socket socket = make(address);
  if (!own_address.empty()) {
    const SocketAddress own = resolve({.host = std::string(own_address), .port = 0}).at(0);
    const bool is_own = ::bind(socket.descriptor(), own.get(), own.size) == 0;
    expect(is_own, "cannot use the address ", own_address, ": ", std::strerror(errno));
  }
  if (::connect(socket.descriptor(), address.get(), address.size) != 0) {
    expect(errno == EINPROGRESS, std::strerror(errno));
    expect(socket.wait(POLLOUT, deadline), "no answer in time");
    int failure = 0;
    socklen_t size = sizeof failure;
    ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &failure, &size);
    expect(failure == 0, std::strerror(failure));
  }
  return socket;
}

Socket Socket::accept(SocketAddress& peer) const {
  return Socket(::accept4(descriptor(), peer.get(), &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Endpoint Socket::address() const {
  SocketAddress address;
  expect(::getsockname(descriptor(), address.get(), &address.size) == 0,
         "cannot read a socket's own address");
  return address.endpoint();
}

std::string Socket::peer() const {
  SocketAddress address;
  if (::getpeername(descriptor(), address.get(), &address.size) != 0) return "an unknown peer";
  return address.endpoint().text();
}

bool Socket::wait(short event, Clock::time_point deadline) const {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = descriptor(), .events = event, .revents = 0};
    const int ready = ::poll(&entry, 1, int(std::clamp<int64_t>(left, 0, 3600000)));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    expect(ready >= 0 || errno == EINTR, "cannot wait for a connection: ", std::strerror(errno));
  }
}

bool Socket::receive(std::string& text, size_t most_bytes) const {
  std::array<char, 65536> part;
  const ssize_t count = ::recv(descriptor(), part.data(), std::min(part.size(), most_bytes), 0);
  if (count > 0) text.append(part.data(), size_t(count));
  if (count == 0) throw ConnectionClosed("it hung up");
  const bool is_quiet = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (count < 0 && !is_quiet) throw ConnectionClosed(std::strerror(errno));
  return count > 0;
}

std::string Socket::receive_exactly(size_t bytes, Clock::time_point deadline) const {
  std::string text;
  while (text.size() < bytes) {
    if (!wait(POLLIN, deadline)) throw ConnectionClosed("no answer in time");
    receive(text, bytes - text.size());
  }
  return text;
}

void Socket::send(std::string_view bytes, Clock::time_point deadline) const {
  while (!bytes.empty()) {
    const ssize_t count = ::send(descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(size_t(count));
      continue;
    }
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
    if (!full) throw ConnectionClosed(std::strerror(errno));
    if (!wait(POLLOUT, deadline)) throw ConnectionClosed("it accepts no more data");
  }
}

size_t descriptor_limit() { return limits().rlim_cur; }

void provide_descriptors(size_t needed, const std::string& whose) {
  rlimit limit = limits();
  require(needed <= limit.rlim_max, whose, " need ", needed, " open files (descriptors), but only ",
          limit.rlim_max,
          " are allowed: raise  ulimit -n  to that. If that is refused, raise the hard limit: nofile in "
          "/etc/security/limits.conf, LimitNOFILE of a service, or --ulimit nofile of a container");
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, std::max<rlim_t>(needed, plenty)));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace lockstep
