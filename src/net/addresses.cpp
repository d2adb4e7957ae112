// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/addresses.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

int parse_port(std::string_view digits, const std::string& text) {
  const int port = number_in<int>(digits).value_or(-1);
  require(port >= 0 && port <= 65535, text, ": the port is a number from 0 to 65535");
  return port;
}

namespace fs = std::filesystem;

/// Returns the bytes of the numeric address: 4 or 16.
std::string number_bytes(const sockaddr* address) {
  const auto bytes_of = [](const auto& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  if (address->sa_family == AF_INET) return bytes_of(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  return bytes_of(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string number_text(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

bool is_shared_number(const std::string& bytes) {
  const auto at = [&](size_t i) { return uint8_t(bytes[i]); };
  if (bytes.size() == 4) return at(0) != 0 && at(0) != 127 && !(at(0) == 169 && at(1) == 254);
  const bool link_local = at(0) == 0xfe && (at(1) & 0xc0) == 0x80;
  const bool small = bytes.find_first_not_of('\0') >= 15;  // :: and ::1
  return !link_local && !small;
}

bool holds_socket(const fs::path& process, const std::string& inode) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(process / "fd", failure)) {
    const fs::path target = fs::read_symlink(entry.path(), failure);
    if (target == "socket:[" + inode + "]") return true;
  }
  return false;
}

std::string process_with_socket(const std::string& inode) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc", failure)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds_socket(entry.path(), inode)) continue;
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    return concat(name, " (pid ", pid, ")");
  }
  return "";
}

}  // namespace

Endpoint Endpoint::parse(const std::string& text, int default_port) {
  const size_t bracket = text.find(']');
  const bool bracketed = text.starts_with('[') && bracket != std::string::npos;
  const size_t last_colon = text.rfind(':');
  // Several colons without brackets are an IPv6 address without a port.
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

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  const bool is_listed = ::getifaddrs(&first) == 0;
  expect(is_listed, "cannot list this host's addresses: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr != nullptr ? entry->ifa_addr->sa_family : AF_UNSPEC;
    const bool up = (entry->ifa_flags & IFF_UP) != 0;
    if (!up || (family != AF_INET && family != AF_INET6)) continue;
    const std::string bytes = number_bytes(entry->ifa_addr);
    all.push_back({.interface = entry->ifa_name,
                   .address = number_text(bytes),
                   .shared = is_shared_number(bytes) && (entry->ifa_flags & IFF_LOOPBACK) == 0});
  }
  return all;
}

std::vector<InterfaceAddress> shared_addresses() {
  std::vector<InterfaceAddress> all = interface_addresses();
  std::erase_if(all, [](const InterfaceAddress& one) { return !one.shared; });
  return all;
}

std::string own_among(const std::vector<std::string>& numbers) {
  for (const InterfaceAddress& own : interface_addresses())
    if (std::ranges::count(numbers, own.address) > 0) return own.address;
  return "";
}

bool is_shared(const SocketAddress& address) { return is_shared_number(number_bytes(address.get())); }

std::string describe_shared_addresses() {
  std::string text;
  for (const InterfaceAddress& one : shared_addresses())
    text += concat(text.empty() ? "" : ", ", one.address, " (", one.interface, ")");
  return text.empty() ? "none" : text;
}

std::vector<TcpSocket> tcp_sockets() {
  std::vector<TcpSocket> all;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // the names of the columns
    while (std::getline(lines, line)) {
      std::ranges::replace(line, ':', ' ');
      std::istringstream words(line);
      TcpSocket socket;
      std::string skipped;
      words >> skipped >> socket.local >> std::hex >> socket.local_port >> socket.remote >>
          socket.remote_port >> socket.state;
      for (int i = 0; i < 5; ++i) words >> skipped;  // queues, timer, retries
      if (words >> std::dec >> socket.user >> skipped >> socket.inode) all.push_back(socket);
    }
  }
  return all;
}

std::string process_on_port(int port) {
  for (const TcpSocket& socket : tcp_sockets())
    if (socket.state == TCP_LISTEN && socket.local_port == port && socket.inode != "0")
      return process_with_socket(socket.inode);
  return "";
}

}  // namespace lockstep
