// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/secret.h"
#include "net/socket.h"

namespace lockstep {

/// What both sides of a channel authenticate its frames with, one key for each direction.
struct SessionKeys {
  std::string sending;
  std::string receiving;
};

/// An authenticated TCP connection that carries messages of bytes, not encrypted. A frame that is altered,
/// repeated, out of order or longer than 16 MiB ends it. One thread may send while another receives.
class Channel {
 public:
  static constexpr size_t most_bytes = size_t(16) << 20;

  Channel(Socket socket, SessionKeys keys);

  /// Throws ConnectionClosed when the other side is gone or takes nothing for ten seconds.
  void send(std::string_view message);
  /// The next message; nothing if none came in time. Throws ConnectionClosed at the end, Error for a bad
  /// frame.
  std::optional<std::string> receive(double timeout_seconds);
  /// For poll(): once it is readable, receive(0) until there is nothing.
  int descriptor() const { return socket_.descriptor(); }
  /// True if a whole message waits that poll() does not know of.
  bool has_buffered() const;
  /// Number and port of the other side: "10.0.0.2:41234", "[fe80::1]:4000".
  const std::string& peer() const { return peer_; }
  /// The number of this side, as the other one sees it.
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

/// Connects and proves to know the secret, and has the other side prove it. Who is turned away before that,
/// as under a flood of strangers, tries again until the time is over. `bind_address`: the own address to use.
/// Throws Error if nobody answers in time, UserError if the secrets differ.
Channel connect_channel(const std::string& endpoint, const Secret& secret, double timeout_seconds,
                        std::string_view bind_address = {});

}  // namespace lockstep
