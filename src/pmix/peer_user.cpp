// SPDX-License-Identifier: Apache-2.0
#include "pmix/peer_user.h"

#include <array>
#include <cstring>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>

#include "core/descriptor.h"
#include "core/text.h"
#include "net/tcp_sockets.h"

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

}  // namespace

std::optional<uid_t> peer_user(int connection) {
  const std::optional<Ends> ends = ends_of(connection);
  if (!ends) return std::nullopt;
  bool is_answered = false;
  const std::optional<uid_t> user = ask_kernel(*ends, is_answered);
  return is_answered ? user : listed_peer_user(connection);
}

std::optional<uid_t> listed_peer_user(int connection) {
  const std::optional<Ends> ends = ends_of(connection);
  if (!ends) return std::nullopt;
  const auto text = [](const sockaddr_in& end) { return upper_case(hexadecimal(end.sin_addr.s_addr, 8)); };
  for (const TcpSocket& socket : tcp_sockets())
    if (socket.state == TCP_ESTABLISHED && socket.inode != "0" && socket.local == text(ends->peer) &&
        socket.local_port == ntohs(ends->peer.sin_port) && socket.remote == text(ends->own) &&
        socket.remote_port == ntohs(ends->own.sin_port))
      return socket.user;
  return std::nullopt;
}

}  // namespace lockstep
