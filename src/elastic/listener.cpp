// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/addresses.h"
#include "core/log.h"
#include "elastic/channel.h"
#include "elastic/handshake.h"
#include "elastic/timing.h"

namespace lockstep {
namespace {

constexpr size_t most_strangers = 256;
constexpr std::chrono::seconds patience{10};

void watch(int events, int descriptor, void* who) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = who;
  expect(::epoll_ctl(events, EPOLL_CTL_ADD, descriptor, &event) == 0,
         "cannot watch a connection: ", std::strerror(errno));
}

/// True if all of it went at once, as so few bytes into a fresh connection do.
bool say(int socket, std::string_view bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size());
}

}  // namespace

struct Listener::Stranger {
  Descriptor socket;
  std::string address;
  std::string nonce = random_bytes(handshake::nonce_bytes);
  std::string heard;
  Clock::time_point since = Clock::now();
};

Listener::~Listener() = default;
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;

Listener::Listener(const std::string& address, int port) {
  const SocketAddress wanted = resolve(Endpoint::parse(address, port)).at(0);
  socket_ = Descriptor(::socket(wanted.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  expect(bool(socket_), "no socket: ", std::strerror(errno));
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (wanted.family() == AF_INET6) ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const bool listens =
      ::bind(socket_.get(), wanted.get(), wanted.size) == 0 && ::listen(socket_.get(), SOMAXCONN) == 0;
  require(listens, "cannot listen on ", wanted.endpoint().text(), ": ", std::strerror(errno));
  events_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  expect(bool(events_), "no epoll: ", std::strerror(errno));
  watch(events_.get(), socket_.get(), nullptr);
}

std::string Listener::endpoint() const { return bound_address(socket_.get()).endpoint().text(); }

std::unique_ptr<Channel> Listener::accept(const Secret& secret, double timeout_seconds) {
  const Clock::time_point deadline = after(timeout_seconds);
  while (true) {
    dismiss_silent();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    epoll_event event{};
    const int ready = ::epoll_wait(events_.get(), &event, 1, int(std::clamp<int64_t>(left, 0, 1000)));
    expect(ready >= 0 || errno == EINTR, "cannot wait for connections: ", std::strerror(errno));
    if (ready == 0 && Clock::now() >= deadline) return nullptr;
    if (ready <= 0) continue;
    if (event.data.ptr == nullptr) {
      welcome();
    } else if (auto channel = hear(*static_cast<Stranger*>(event.data.ptr), secret)) {
      return channel;
    }
  }
}

void Listener::welcome() {
  SocketAddress address;
  Descriptor socket(::accept4(socket_.get(), address.get(), &address.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return;
  if (strangers_.size() >= most_strangers) dismiss(strangers_.front(), "too many others wait");
  Stranger& stranger = strangers_.emplace_back();
  stranger.socket = std::move(socket);
  stranger.address = address.endpoint().text();
  watch(events_.get(), stranger.socket.get(), &stranger);
  if (!say(stranger.socket.get(), handshake::greeting(stranger.nonce))) dismiss(stranger, "it hung up");
}

std::unique_ptr<Channel> Listener::hear(Stranger& stranger, const Secret& secret) {
  constexpr size_t wanted = handshake::greeting_bytes + handshake::proof_bytes;
  std::array<char, wanted> part{};
  const ssize_t count = ::recv(stranger.socket.get(), part.data(), wanted - stranger.heard.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return nullptr;
  if (count > 0) stranger.heard.append(part.data(), size_t(count));
  const size_t compared = std::min(stranger.heard.size(), handshake::protocol.size());
  const bool speaks = stranger.heard.compare(0, compared, handshake::protocol.substr(0, compared)) == 0;
  if (count <= 0 || !speaks) {
    dismiss(stranger, speaks ? "it hung up before it proved to know the secret" : "it is not lockrun");
    return nullptr;
  }
  if (stranger.heard.size() < wanted) return nullptr;
  const handshake::Nonces nonces{.connector = handshake::nonce_of(stranger.heard),
                                 .listener = stranger.nonce};
  const std::string proof = stranger.heard.substr(handshake::greeting_bytes);
  if (!equal_in_constant_time(proof, nonces.connector_proof(secret))) {
    // Anything but a proof tells an honest stranger that the secrets differ, and a dishonest one nothing.
    say(stranger.socket.get(), std::string(handshake::proof_bytes, '\0'));
    dismiss(stranger, "it does not know the secret");
    return nullptr;
  }
  if (!say(stranger.socket.get(), nonces.listener_proof(secret))) {
    dismiss(stranger, "it hung up");
    return nullptr;
  }
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, stranger.socket.get(), nullptr);
  auto channel = std::make_unique<Channel>(std::move(stranger.socket), nonces.listener_keys(secret));
  strangers_.remove_if([&](const Stranger& one) { return &one == &stranger; });
  return channel;
}

void Listener::dismiss(Stranger& stranger, const std::string& reason) {
  log_warning(concat("refused ", stranger.address, ": ", reason));
  strangers_.remove_if([&](const Stranger& one) { return &one == &stranger; });
}

void Listener::dismiss_silent() {
  while (!strangers_.empty() && Clock::now() - strangers_.front().since > patience)
    dismiss(strangers_.front(), "it says nothing");
}

}  // namespace lockstep
