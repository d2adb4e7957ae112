// SPDX-License-Identifier: Apache-2.0
#include "train/doctor/socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Throws Error if the name is unknown.
AddressList resolve(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int problem = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
  expect(problem == 0, address.host, ": ", ::gai_strerror(problem));
  return {list, &::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

int port_of(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                         : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

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

Address Address::parse(const std::string& text) {
  const bool is_bracketed = text.starts_with("[");
  const size_t end = is_bracketed ? text.find(']') : text.rfind(':');
  Address address{.host = is_bracketed ? text.substr(1, end - 1) : text.substr(0, end)};
  require(!address.host.empty() && !(is_bracketed && end == std::string::npos), "'", text,
          "' is no address: write host:port or [ipv6]:port");
  const std::string rest = end == std::string::npos ? "" : text.substr(end + (is_bracketed ? 1 : 0));
  if (rest.empty()) return address;
  const std::string digits = rest.substr(1);
  const bool is_number =
      !digits.empty() && digits.size() <= 5 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  require(rest[0] == ':' && is_number && std::stoi(digits) <= 65535, "'", text,
          "' has no port from 0 to 65535 after its last colon");
  address.port = std::stoi(digits);
  return address;
}

std::string Address::text() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? concat("[", host, "]:", port) : concat(host, ":", port);
}

ListeningSocket::ListeningSocket(const Address& address) : address_(address) {
  const AddressList list = resolve(address, AI_PASSIVE);
  descriptor_ = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  expect(descriptor_ >= 0, address.text(), ": ", std::strerror(errno));
  const int yes = 1;
  ::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool listens =
      ::bind(descriptor_, list->ai_addr, list->ai_addrlen) == 0 && ::listen(descriptor_, 64) == 0;
  if (!listens) {
    const std::string problem = std::strerror(errno);
    ::close(descriptor_);
    throw Error(concat(address.text(), ": ", problem));
  }
  address_.port = port_of(descriptor_);
}

ListeningSocket::~ListeningSocket() { ::close(descriptor_); }

std::string try_to_connect(const Address& address, double seconds) {
  try {
    const AddressList list = resolve(address, 0);
    const int descriptor = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return std::strerror(errno);
    const bool is_done = ::connect(descriptor, list->ai_addr, list->ai_addrlen) == 0;
    std::string problem;
    if (!is_done)
      problem = errno == EINPROGRESS ? wait_for_connection(descriptor, seconds) : std::strerror(errno);
    ::close(descriptor);
    return problem;
  } catch (const Error& unknown) {
    return unknown.what();
  }
}

std::vector<std::string> addresses_of(const std::string& host) {
  std::vector<std::string> addresses;
  try {
    const AddressList list = resolve({.host = host, .port = 0}, 0);
    for (const addrinfo* entry = list.get(); entry; entry = entry->ai_next) {
      const std::string text = numeric(entry->ai_addr, entry->ai_addrlen);
      if (std::find(addresses.begin(), addresses.end(), text) == addresses.end()) addresses.push_back(text);
    }
  } catch (const Error&) {
    return {};
  }
  return addresses;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    const bool is_up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string text =
        numeric(entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!text.starts_with("fe80:") && !text.starts_with("169.254.")) addresses.push_back(text);
  }
  ::freeifaddrs(list);
  return addresses;
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

}  // namespace lockstep
