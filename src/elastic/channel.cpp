// SPDX-License-Identifier: Apache-2.0
#include "elastic/channel.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "core/addresses.h"
#include "elastic/handshake.h"
#include "elastic/timing.h"

namespace lockstep {
namespace {

constexpr size_t length_bytes = 4;
constexpr size_t code_bytes = 32;
constexpr double send_timeout_seconds = 10.0;
/// How long a listener may take to greet: it may never have seen a connection that the system has taken.
constexpr double greeting_seconds = 5.0;
constexpr double first_pause_seconds = 0.05;
constexpr double longest_pause_seconds = 1.0;

/// False if nothing happened before the deadline.
bool wait_for(int descriptor, short event, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = descriptor, .events = event, .revents = 0};
    const int ready = ::poll(&entry, 1, int(std::clamp<int64_t>(left, 0, 3600000)));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    expect(ready >= 0 || errno == EINTR, "cannot wait for a connection: ", std::strerror(errno));
  }
}

std::string big_endian(uint64_t number, size_t bytes) {
  std::string text;
  while (bytes-- > 0) text += char(number >> (8 * bytes) & 255);
  return text;
}

std::string peer_of(int socket) {
  SocketAddress address;
  if (::getpeername(socket, address.get(), &address.size) != 0) return "somebody who is gone";
  return address.endpoint().text();
}

/// A host that vanished without a word is noticed within about ten seconds.
void tune(int socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 10000);
}

void write_all(int socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(size_t(count));
      continue;
    }
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == EWOULDBLOCK;
    if (!full) throw ChannelClosed(std::strerror(errno));
    if (!wait_for(socket, POLLOUT, deadline)) throw ChannelClosed("it takes nothing any more");
  }
}

std::string read_exactly(int socket, size_t bytes, Clock::time_point deadline) {
  std::string text;
  while (text.size() < bytes) {
    if (!wait_for(socket, POLLIN, deadline)) throw ChannelClosed("no answer in time");
    std::array<char, 256> part{};
    const ssize_t count = ::recv(socket, part.data(), std::min(part.size(), bytes - text.size()), 0);
    if (count == 0) throw ChannelClosed("it hung up");
    if (count > 0) text.append(part.data(), size_t(count));
    if (count < 0 && errno != EINTR && errno != EAGAIN) throw ChannelClosed(std::strerror(errno));
  }
  return text;
}

Descriptor connect_socket(const SocketAddress& address, std::string_view bind_address,
                          Clock::time_point deadline) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  expect(bool(socket), "no socket: ", std::strerror(errno));
  if (!bind_address.empty()) {
    const SocketAddress own = resolve({.host = std::string(bind_address), .port = 0}).at(0);
    expect(::bind(socket.get(), own.get(), own.size) == 0, "cannot use the address ", bind_address, ": ",
           std::strerror(errno));
  }
  if (::connect(socket.get(), address.get(), address.size) != 0) {
    expect(errno == EINPROGRESS, std::strerror(errno));
    expect(wait_for(socket.get(), POLLOUT, deadline), "no answer in time");
    int failure = 0;
    socklen_t size = sizeof failure;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    expect(failure == 0, std::strerror(failure));
  }
  return socket;
}

Channel greet(Descriptor socket, const Secret& secret, Clock::time_point deadline) {
  const std::string heard = read_exactly(socket.get(), handshake::greeting_bytes, deadline);
  expect(heard.starts_with(handshake::protocol), "who answers is not lockrun, or another version of it");
  const handshake::Nonces nonces{.connector = random_bytes(handshake::nonce_bytes),
                                 .listener = handshake::nonce_of(heard)};
  write_all(socket.get(), handshake::greeting(nonces.connector) + nonces.connector_proof(secret), deadline);
  const std::string proof = read_exactly(socket.get(), handshake::proof_bytes, deadline);
  require(equal_in_constant_time(proof, nonces.listener_proof(secret)),
          "refused: the secret of the other side is another one");
  return {std::move(socket), nonces.connector_keys(secret)};
}

}  // namespace

Channel::Channel(Descriptor socket, SessionKeys keys)
    : socket_(std::move(socket)), keys_(std::move(keys)), peer_(peer_of(socket_.get())) {
  tune(socket_.get());
}

void Channel::fail(const std::string& reason) {
  at_end_ = true;
  received_.clear();
  throw Error(concat("connection to ", peer_, ": ", reason));
}

void Channel::send(std::string_view message) {
  expect(message.size() <= most_bytes, "a message of ", message.size(), " bytes is too long");
  // The number of the frame is authenticated but not sent: the other side counts as well.
  std::string frame = big_endian(sent_frames_++, 8) + big_endian(message.size(), length_bytes);
  frame += message;
  frame += authentication_code(keys_.sending, frame);
  try {
    write_all(socket_.get(), std::string_view(frame).substr(8), after(send_timeout_seconds));
  } catch (const ChannelClosed& failure) {
    throw ChannelClosed(concat("connection to ", peer_, " lost: ", failure.what()));
  }
}

size_t Channel::frame_bytes() const {
  if (received_.size() < length_bytes) return length_bytes;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length = length << 8 | uint8_t(received_[i]);
  return length_bytes + length + code_bytes;
}

bool Channel::has_buffered() const {
  return received_.size() > length_bytes && received_.size() >= frame_bytes();
}

std::optional<std::string> Channel::take_frame() {
  const size_t bytes = frame_bytes();
  if (bytes > length_bytes + most_bytes + code_bytes) fail("a message longer than 16 MiB");
  if (!has_buffered()) return std::nullopt;
  const std::string authenticated =
      big_endian(received_frames_++, 8) + received_.substr(0, bytes - code_bytes);
  const std::string code = received_.substr(bytes - code_bytes, code_bytes);
  if (!equal_in_constant_time(code, authentication_code(keys_.receiving, authenticated)))
    fail("a message that was altered, repeated or not sent by who connected");
  received_.erase(0, bytes);
  return authenticated.substr(8 + length_bytes);
}

bool Channel::read_more(Clock::time_point deadline) {
  std::array<char, 65536> part;
  while (true) {
    const ssize_t count = ::recv(socket_.get(), part.data(), part.size(), 0);
    if (count > 0) {
      received_.append(part.data(), size_t(count));
      return true;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(socket_.get(), POLLIN, deadline)) return false;
      continue;
    }
    const std::string reason = count == 0 ? "it hung up" : std::strerror(errno);
    at_end_ = true;
    throw ChannelClosed(concat("connection to ", peer_, " lost: ", reason));
  }
}

std::optional<std::string> Channel::receive(double timeout_seconds) {
  if (at_end_) throw ChannelClosed(concat("connection to ", peer_, " lost"));
  const Clock::time_point deadline = after(timeout_seconds);
  while (true) {
    if (auto message = take_frame()) return message;
    if (!read_more(deadline)) return std::nullopt;
  }
}

std::string Channel::local_host() const { return bound_address(socket_.get()).endpoint().host; }

Channel connect_channel(const std::string& endpoint, const Secret& secret, double timeout_seconds,
                        std::string_view bind_address) {
  const Clock::time_point deadline = after(timeout_seconds);
  for (double pause = first_pause_seconds;; pause = std::min(2 * pause, longest_pause_seconds)) {
    std::string reasons;
    bool was_turned_away = false;
    for (const SocketAddress& address : resolve(Endpoint::parse(endpoint))) {
      try {
        Descriptor socket = connect_socket(address, bind_address, deadline);
        return greet(std::move(socket), secret, std::min(deadline, after(greeting_seconds)));
      } catch (const UserError& failure) {
        throw UserError(concat(endpoint, ": ", failure.what()));
      } catch (const Error& failure) {
        reasons += concat(reasons.empty() ? "" : "; ", address.endpoint().text(), ": ", failure.what());
        was_turned_away |= dynamic_cast<const ChannelClosed*>(&failure) != nullptr;
      }
    }
    if (!was_turned_away || after(pause) >= deadline)
      throw Error(concat("cannot connect to ", endpoint, " (", reasons, ")"));
    std::this_thread::sleep_for(duration(pause));
  }
}

}  // namespace lockstep
