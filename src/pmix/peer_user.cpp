// SPDX-License-Identifier: Apache-2.0
#include "pmix/peer_user.h"

#include <array>
#include <cstring>
#include <fstream>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sstream>
#include <string>

#include "core/descriptor.h"

namespace lockstep {
namespace {

/// The two ends of a connection over IPv4, in network byte order.
struct Ends {
  sockaddr_in peer{};
  sockaddr_in own{};
};

std::optional<Ends> ends_of(int connection) {
  Ends ends;
  socklen_t size = sizeof ends.peer;
  const bool has_peer = ::getpeername(connection, reinterpret_cast<sockaddr*>(&ends.peer), &size) == 0;
  size = sizeof ends.own;
  const bool has_own = ::getsockname(connection, reinterpret_cast<sockaddr*>(&ends.own), &size) == 0;
  if (!has_peer || !has_own || ends.peer.sin_family != AF_INET || ends.own.sin_family != AF_INET)
    return std::nullopt;
  return ends;
}

/// Asks the kernel for one socket, by its two ends (sock_diag(7)). That takes the same time however many
/// connections there are. `is_answered` is false if this kernel has no such service.
std::optional<uid_t> ask_kernel(const Ends& ends, bool& is_answered) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.body.sdiag_family = AF_INET;
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0U;
  inet_diag_sockid& id = question.body.id;
  id.idiag_sport = ends.peer.sin_port;
  id.idiag_dport = ends.own.sin_port;
  id.idiag_src[0] = ends.peer.sin_addr.s_addr;
  id.idiag_dst[0] = ends.own.sin_addr.s_addr;
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

  const Descriptor kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  alignas(nlmsghdr) std::array<char, 4096> answer{};
  ssize_t count = -1;
  if (kernel && ::send(kernel.get(), &question, sizeof question, 0) == sizeof question)
    count = ::recv(kernel.get(), answer.data(), answer.size(), 0);
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
  const auto* message = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  const bool has_message = count >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof *message)) &&
                           header->nlmsg_type == SOCK_DIAG_BY_FAMILY;
  const bool has_error =
      count >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(nlmsgerr))) && header->nlmsg_type == NLMSG_ERROR;
  is_answered =
      has_message || (has_error && reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(header))->error == -ENOENT);
  // A socket that its process has closed has no inode, and belongs to nobody.
  if (!has_message || message->idiag_state != TCP_ESTABLISHED || message->idiag_inode == 0)
    return std::nullopt;
  return message->idiag_uid;
}

/// Looks for the socket in the kernel's list of all connections.
std::optional<uid_t> find_in_list(const Ends& ends) {
  std::ifstream list("/proc/net/tcp");
  std::string line;
  std::getline(list, line);
  while (std::getline(list, line)) {
    for (char& letter : line)
      if (letter == ':') letter = ' ';
    std::istringstream words(line);
    uint32_t from = 0, from_port = 0, to = 0, to_port = 0, state = 0;
    std::string skipped;
    uid_t user = 0;
    uint64_t inode = 0;
    words >> skipped >> std::hex >> from >> from_port >> to >> to_port >> state;
    for (int i = 0; i < 5; ++i) words >> skipped;
    words >> std::dec >> user >> skipped >> inode;
    if (words && from == ends.peer.sin_addr.s_addr && from_port == ntohs(ends.peer.sin_port) &&
        to == ends.own.sin_addr.s_addr && to_port == ntohs(ends.own.sin_port) && state == TCP_ESTABLISHED &&
        inode != 0)
      return user;
  }
  return std::nullopt;
}

}  // namespace

std::optional<uid_t> peer_user(int connection) {
  const std::optional<Ends> ends = ends_of(connection);
  if (!ends) return std::nullopt;
  bool is_answered = false;
  const std::optional<uid_t> user = ask_kernel(*ends, is_answered);
  return is_answered ? user : find_in_list(*ends);
}

}  // namespace lockstep
