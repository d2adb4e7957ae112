// SPDX-License-Identifier: Apache-2.0
// A peer of a listener: a stranger that sends anything, or one that knows the secret and sends frames.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "fuzz/fuzz.h"
#include "lockstep/core/log.h"
#include "lockstep/net/listener.h"

using namespace lockstep;

namespace {

std::string big_endian(uint64_t number, int bytes) {
  std::string text;
  while (bytes-- > 0) text += static_cast<char>(number >> (8 * bytes) & 255);
  return text;
}

/// Connects to this host and closes the connection without leaving it in TIME_WAIT.
Descriptor dial(int port) {
  Descriptor peer(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const linger at_once{1, 0};
  ::setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fuzz::check(::connect(peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
              "no connection");
  return peer;
}

void send(const Descriptor& peer, std::string_view text) {
  [[maybe_unused]] const auto sent =
      ::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Returns frames with the right numbers and codes, and other bytes between them. A byte of the plan says
/// what comes next and how long it is.
std::string frames_of(std::string_view plan, const std::string& key) {
  std::string sent;
  uint64_t number = 0;
  while (!plan.empty()) {
    const auto next = static_cast<uint8_t>(plan[0]);
    const std::string body(plan.substr(1, next & 63));
    plan.remove_prefix(1 + body.size());
    if ((next & 64) == 0) {
      sent += body;
      continue;
    }
    const std::string numbered = big_endian(number++, 8) + big_endian(body.size(), 4) + body;
    sent += numbered.substr(8) + authentication_code(key, numbered);
  }
  return sent;
}

/// Greets as a connector that knows the secret. Returns its keys.
SessionKeys greet(const Descriptor& peer, const Secret& secret) {
  std::string heard(handshake::greeting_bytes, '\0');
  fuzz::check(::recv(peer.get(), heard.data(), heard.size(), MSG_WAITALL) == std::ssize(heard),
              "no greeting");
  const handshake::Nonces nonces{.connector = std::string(handshake::nonce_bytes, 'c'),
                                 .listener = handshake::nonce_of(heard)};
  send(peer, handshake::greeting(nonces.connector) + nonces.connector_proof(secret));
  return nonces.connector_keys(secret);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < 2) return 0;
  static const Secret secret = Secret::from_text("0123456789abcdef0123456789abcdef");
  static Listener& listener = *new Listener("127.0.0.1", 0);
  static const int port = Endpoint::parse(listener.endpoint()).port;
  const std::string_view plan = fuzz::text_of(data + 1, bytes - 1);
  const Descriptor peer = dial(port);
  listener.accept(secret, 0.0);
  if (data[0] & 1) {
    send(peer, plan);
    if (data[0] & 2) ::shutdown(peer.get(), SHUT_WR);
    fuzz::check(listener.accept(secret, 0.0) == nullptr, "a stranger was accepted");
    return 0;
  }
  const SessionKeys keys = greet(peer, secret);
  const std::unique_ptr<Channel> channel = listener.accept(secret, 1.0);
  fuzz::check(channel != nullptr, "a peer with the secret was refused");
  send(peer, frames_of(plan, keys.sending));
  ::shutdown(peer.get(), SHUT_WR);
  fuzz::accepts<Error>([&] {
    while (channel->receive(0.0)) {
    }
  });
  channel->has_buffered();
  return 0;
}
