// SPDX-License-Identifier: Apache-2.0
#include "net/addresses.h"

#include <charconv>
#include <cstring>
#include <memory>
#include <netdb.h>

#include "core/error.h"

namespace lockstep {
namespace {

int parse_port(std::string_view digits, const std::string& text) {
  int port = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  require(failure == std::errc() && end == digits.data() + digits.size() && port >= 0 && port <= 65535, text,
          ": the port is a number from 0 to 65535");
  return port;
}

}  // namespace

Endpoint Endpoint::parse(const std::string& text, int default_port) {
  const size_t bracket = text.find(']');
  const bool bracketed = text.starts_with('[') && bracket != std::string::npos;
  const size_t last_colon = text.rfind(':');
  // Several colons without brackets are an IPv6 address that has no port.
  const bool bare_number = !bracketed && text.find(':') != last_colon;
  const bool has_port =
      last_colon != std::string::npos && !bare_number && (!bracketed || last_colon == bracket + 1);
  Endpoint endpoint;
  endpoint.port = has_port ? parse_port(std::string_view(text).substr(last_colon + 1), text) : default_port;
  endpoint.host = has_port ? text.substr(0, last_colon) : text;
  if (bracketed) endpoint.host = text.substr(1, bracket - 1);
  const bool is_torn = text.starts_with('[') && (!bracketed || (!has_port && bracket + 1 != text.size()));
  require(!endpoint.host.empty() && endpoint.port >= 0 && !is_torn, "\"", text,
          "\" is not host:port (IPv6: [address]:port)");
  return endpoint;
}

std::string Endpoint::text() const {
  const bool number = host.find(':') != std::string::npos;
  return number ? concat("[", host, "]:", port) : concat(host, ":", port);
}

Endpoint SocketAddress::endpoint() const {
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "0";
  const int failure =
      ::getnameinfo(get(), size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  expect(failure == 0, "cannot read a socket's address: ", ::gai_strerror(failure));
  return {.host = host, .port = std::stoi(port)};
}

std::vector<SocketAddress> resolve(const Endpoint& endpoint) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int failure =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &wanted, &first);
  expect(failure == 0, "cannot find the address of ", endpoint.host, ": ", ::gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(first, &::freeaddrinfo);
  std::vector<SocketAddress> all;
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    all.push_back(address);
  }
  return all;
}

}  // namespace lockstep
