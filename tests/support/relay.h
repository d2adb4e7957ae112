// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <poll.h>
#include <string>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/net/socket.h"

namespace lockstep {

constexpr double relay_seconds = 30.0;

/// Returns a plain TCP connection to a listener, for strangers and relays. It is empty if it cannot be made.
inline Socket plain_connection(const std::string& endpoint) {
  try {
    return Socket::connect(resolve(Endpoint::parse(endpoint)).at(0), after(relay_seconds));
  } catch (const Error&) {
    return {};
  }
}

/// A relay between one connection and its listener. It keeps every byte, and may change the bytes that it
/// forwards.
class Relay {
 public:
  /// A function of the bytes that pass and their direction. It returns the bytes to forward instead.
  using Meddle = std::function<std::string(std::string bytes, bool to_listener)>;

  /// Closes the first `turned_away` connections at once.
  explicit Relay(std::string listener, Meddle meddle = {}, int turned_away = 0)
      : target_(std::move(listener)), meddle_(std::move(meddle)), turned_away_(turned_away) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }

  std::string endpoint() const { return door_.address().text(); }
  std::string captured() const {
    const std::lock_guard lock(mutex_);
    return captured_;
  }

 private:
  void serve() {
    SocketAddress peer;
    while (turned_away_-- > 0 && somebody_came()) door_.accept(peer);
    if (!somebody_came()) return;
    const Socket near = door_.accept(peer);
    const Socket far = plain_connection(target_);
    try {
      while (!stop_) {
        wait_for_any({near.descriptor(), far.descriptor()}, 0.02);
        pass(near, far, true);
        pass(far, near, false);
      }
    } catch (const ConnectionClosed&) {
      // Both ends are closed when this thread ends.
    }
  }

  bool somebody_came() {
    while (!stop_)
      if (door_.wait(POLLIN, after(0.02))) return true;
    return false;
  }

  void pass(const Socket& from, const Socket& to, bool to_listener) {
    std::string bytes;
    if (!from.receive(bytes, 65536)) return;
    {
      const std::lock_guard lock(mutex_);
      captured_ += bytes;
    }
    if (meddle_) bytes = meddle_(bytes, to_listener);
    to.send(bytes, after(relay_seconds));
  }

  std::string target_;
  Meddle meddle_;
  int turned_away_;
  Socket door_ = Socket::listen({.host = "127.0.0.1"});
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::string captured_;
  std::thread thread_;
};

}  // namespace lockstep
