// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/net/secret.h"
#include "lockstep/net/socket.h"

namespace lockstep {

/// The keys that authenticate the frames of a channel, one for each direction.
struct SessionKeys {
  std::string sending;
  std::string receiving;
};

/// An authenticated TCP connection that carries messages of bytes. It is not encrypted. A frame that is
/// altered, repeated, out of order or longer than 16 MiB ends it. One thread may send while another receives.
class Channel {
 public:
  static constexpr size_t most_bytes = size_t(16) << 20;

  Channel(Socket socket, SessionKeys keys);

  /// Sends a message. Throws ConnectionClosed when the other side is gone or accepts nothing for ten seconds.
  void send(std::string_view message);
  /// Returns the next message; nothing if none came in time. Throws ConnectionClosed; Error for a bad frame.
  std::optional<std::string> receive(double timeout_seconds);
  /// A descriptor for poll(). When it is readable, call receive(0) until it returns nothing.
  int descriptor() const { return socket_.descriptor(); }
  /// Returns true if a whole message is buffered, which poll() does not show.
  bool has_buffered() const;
  /// Returns the numeric address and port of the other side: "10.0.0.2:41234", "[fe80::1]:4000".
  const std::string& peer() const { return peer_; }
  /// Returns the numeric address of this side, as the other side sees it.
  std::string local_host() const { return socket_.address().host; }

 private:
  std::optional<std::string> take_frame();
  size_t frame_bytes() const;
  bool read_more(Clock::time_point deadline);
  [[noreturn]] void fail(const std::string& reason);

  Socket socket_;
  SessionKeys keys_;
  std::string peer_;
  std::string received_;
  uint64_t sent_frames_ = 0;
  uint64_t received_frames_ = 0;
  bool at_end_ = false;
};

/// Connects, proves that this side knows the secret, and lets the other side prove it. A connection that is
/// closed before that, as in a flood of strangers, is tried again until the timeout. `bind_address` is the
/// own address to use. Throws Error if no listener answers in time, and UserError if the secrets differ.
Channel connect_channel(const std::string& endpoint, const Secret& secret, double timeout_seconds,
                        std::string_view bind_address = {});

namespace handshake {

/// The first bytes of a channel. The listener sends its greeting. The connector answers with greeting and
/// proof. The listener checks the proof and answers with its own. Each proof covers both nonces and a role,
/// so that it cannot be replayed or mirrored.

constexpr std::string_view protocol = "lockstep-chan-1\n";
constexpr size_t nonce_bytes = 32;
constexpr size_t proof_bytes = 32;
constexpr size_t greeting_bytes = protocol.size() + nonce_bytes;

/// Returns the protocol's name followed by the nonce.
inline std::string greeting(const std::string& nonce) { return std::string(protocol) + nonce; }

inline std::string nonce_of(std::string_view greeting) {
  return std::string(greeting.substr(protocol.size(), nonce_bytes));
}

/// The nonces of both sides, from which proofs and keys are made.
struct Nonces {
  std::string connector;
  std::string listener;

  std::string code(const Secret& secret, std::string_view purpose) const {
    return authentication_code(secret.bytes(),
                               std::string(protocol) + std::string(purpose) + "\n" + connector + listener);
  }
  std::string connector_proof(const Secret& secret) const { return code(secret, "proof of the connector"); }
  std::string listener_proof(const Secret& secret) const { return code(secret, "proof of the listener"); }
  SessionKeys connector_keys(const Secret& secret) const {
    return {.sending = code(secret, "key to the listener"),
            .receiving = code(secret, "key to the connector")};
  }
  SessionKeys listener_keys(const Secret& secret) const {
    return {.sending = code(secret, "key to the connector"),
            .receiving = code(secret, "key to the listener")};
  }
};

}  // namespace handshake

}  // namespace lockstep
