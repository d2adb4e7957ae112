// SPDX-License-Identifier: Apache-2.0
#include "lockstep/net/channel.h"

#include <algorithm>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/net/addresses.h"

namespace lockstep {
namespace {

constexpr size_t length_bytes = 4;
constexpr size_t code_bytes = 32;
constexpr double send_timeout_seconds = 10.0;
/// The time that a listener has for its greeting. It may never see a connection that the system has accepted.
constexpr double greeting_seconds = 5.0;
constexpr double first_pause_seconds = 0.05;
constexpr double longest_pause_seconds = 1.0;

std::string big_endian(uint64_t number, size_t bytes) {
  std::string text;
  while (bytes-- > 0) text += char(number >> (8 * bytes) & 255);
  return text;
}

/// Sets the socket's options. A host that vanished silently is noticed within about ten seconds.
void tune(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(socket.descriptor(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 10000);
}

Channel greet(Socket socket, const Secret& secret, Clock::time_point deadline) {
  const std::string heard = socket.receive_exactly(handshake::greeting_bytes, deadline);
  expect(heard.starts_with(handshake::protocol),
         "the other side is not lockrun, or is another version of it");
  const handshake::Nonces nonces{.connector = random_bytes(handshake::nonce_bytes),
                                 .listener = handshake::nonce_of(heard)};
  socket.send(handshake::greeting(nonces.connector) + nonces.connector_proof(secret), deadline);
  const std::string proof = socket.receive_exactly(handshake::proof_bytes, deadline);
  require(equal_in_constant_time(proof, nonces.listener_proof(secret)),
          "refused: the other side has a different secret");
  return {std::move(socket), nonces.connector_keys(secret)};
}

}  // namespace

Channel::Channel(Socket socket, SessionKeys keys)
    : socket_(std::move(socket)), keys_(std::move(keys)), peer_(socket_.peer()) {
  tune(socket_);
}

void Channel::fail(const std::string& reason) {
  at_end_ = true;
  received_.clear();
  throw Error(concat("connection to ", peer_, ": ", reason));
}

void Channel::send(std::string_view message) {
  expect(message.size() <= most_bytes, "a message of ", message.size(), " bytes is too long");
  // The frame's number is authenticated but not sent, because the other side counts frames as well.
  std::string frame = big_endian(sent_frames_++, 8) + big_endian(message.size(), length_bytes);
  frame += message;
  frame += authentication_code(keys_.sending, frame);
  try {
    socket_.send(std::string_view(frame).substr(8), after(send_timeout_seconds));
  } catch (const ConnectionClosed& failure) {
    throw ConnectionClosed(concat("connection to ", peer_, " lost: ", failure.what()));
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
  if (bytes > length_bytes + most_bytes + code_bytes) fail("a message is longer than 16 MiB");
  if (!has_buffered()) return std::nullopt;
  const std::string authenticated =
      big_endian(received_frames_++, 8) + received_.substr(0, bytes - code_bytes);
  const std::string code = received_.substr(bytes - code_bytes, code_bytes);
  if (!equal_in_constant_time(code, authentication_code(keys_.receiving, authenticated)))
    fail("a message was altered, repeated, or not sent by the other side");
  received_.erase(0, bytes);
  return authenticated.substr(8 + length_bytes);
}

bool Channel::read_more(Clock::time_point deadline) {
  try {
    while (!socket_.receive(received_, 65536))
      if (!socket_.wait(POLLIN, deadline)) return false;
    return true;
  } catch (const ConnectionClosed& failure) {
    at_end_ = true;
    throw ConnectionClosed(concat("connection to ", peer_, " lost: ", failure.what()));
  }
}

std::optional<std::string> Channel::receive(double timeout_seconds) {
  if (at_end_) throw ConnectionClosed(concat("connection to ", peer_, " lost"));
  const Clock::time_point deadline = after(timeout_seconds);
  while (true) {
    if (auto message = take_frame()) return message;
    if (!read_more(deadline)) return std::nullopt;
  }
}

Channel connect_channel(const std::string& endpoint, const Secret& secret, double timeout_seconds,
                        std::string_view bind_address) {
  const Clock::time_point deadline = after(timeout_seconds);
  for (double pause = first_pause_seconds;; pause = std::min(2 * pause, longest_pause_seconds)) {
    std::string reasons;
    bool was_turned_away = false;
    for (const SocketAddress& address : resolve(Endpoint::parse(endpoint))) {
      try {
        return greet(Socket::connect(address, deadline, bind_address), secret,
                     std::min(deadline, after(greeting_seconds)));
      } catch (const UserError& failure) {
        throw UserError(concat(endpoint, ": ", failure.what()));
      } catch (const Error& failure) {
        reasons += concat(reasons.empty() ? "" : "; ", address.endpoint().text(), ": ", failure.what());
        was_turned_away |= dynamic_cast<const ConnectionClosed*>(&failure) != nullptr;
      }
    }
    if (!was_turned_away || after(pause) >= deadline)
      throw Error(concat("cannot connect to ", endpoint, " (", reasons, ")"));
    std::this_thread::sleep_for(clock_duration(pause));
  }
}

}  // namespace lockstep
