// SPDX-License-Identifier: Apache-2.0
#include "lockstep/pmix/port_guard.h"

#include <array>
#include <cerrno>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/text.h"
#include "lockstep/net/addresses.h"

namespace lockstep {
namespace {

/// Milliseconds within which a connection has to send something. The library would wait for 12 s.
constexpr int patience_ms = 4000;

/// The two ends of a connection over IPv4, in network byte order.
struct Ends {
  sockaddr_in peer{};
  sockaddr_in own{};
};

std::optional<Ends> ends_of(int connection) {
  Ends ends;
  const auto is_known = [&](auto call, sockaddr_in& end) {
    socklen_t size = sizeof end;
    return call(connection, reinterpret_cast<sockaddr*>(&end), &size) == 0 && end.sin_family == AF_INET;
  };
  if (is_known(::getpeername, ends.peer) && is_known(::getsockname, ends.own)) return ends;
  return std::nullopt;
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

bool is_welcome(int connection) {
  if (peer_user(connection) != ::geteuid()) return false;
  pollfd input{connection, POLLIN, 0};
  return ::poll(&input, 1, patience_ms) == 1;
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

int accept_from_own_user(int listener, sockaddr* address, socklen_t* size, int flags) {
  // accept4() of the C library may be the one that calls this function.
  const auto connection = static_cast<int>(::syscall(SYS_accept4, listener, address, size, flags));
  if (connection < 0 || is_welcome(connection)) return connection;
  ::close(connection);
  errno = ECONNABORTED;  // the library continues to listen
  return -1;
}

}  // namespace lockstep
