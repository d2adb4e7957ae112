// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>

#include "core/addresses.h"
#include "core/descriptor.h"

namespace lockstep {

/// A plain TCP connection to a listener, for strangers and relays.
inline Descriptor plain_connection(const std::string& endpoint) {
  const SocketAddress address = resolve(Endpoint::parse(endpoint)).at(0);
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), address.get(), address.size) != 0) socket.reset();
  return socket;
}

/// Stands between one connection and its listener, keeps every byte, and may change what it passes on.
class Relay {
 public:
  /// Gets what passes and which way, and returns what is passed on instead.
  using Meddle = std::function<std::string(std::string bytes, bool to_listener)>;

  /// The first `turned_away` connections are closed at once.
  explicit Relay(std::string listener, Meddle meddle = {}, int turned_away = 0)
      : target_(std::move(listener)), meddle_(std::move(meddle)), turned_away_(turned_away) {
    const SocketAddress any = resolve({.host = "127.0.0.1", .port = 0}).at(0);
    door_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::bind(door_.get(), any.get(), any.size);
    ::listen(door_.get(), 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~Relay() {
    stop_ = true;
    thread_.join();
  }

  std::string endpoint() const { return bound_address(door_.get()).endpoint().text(); }
  std::string captured() const {
    const std::lock_guard lock(mutex_);
    return captured_;
  }

 private:
  void serve() {
    while (turned_away_-- > 0)
      if (readable(door_.get())) Descriptor(::accept(door_.get(), nullptr, nullptr)).reset();
    if (!readable(door_.get())) return;
    const Descriptor near(::accept(door_.get(), nullptr, nullptr));
    const Descriptor far = plain_connection(target_);
    while (!stop_) {
      std::array<pollfd, 2> both = {{{near.get(), POLLIN, 0}, {far.get(), POLLIN, 0}}};
      ::poll(both.data(), both.size(), 20);
      if (both[0].revents != 0 && !pass(near.get(), far.get(), true)) return;
      if (both[1].revents != 0 && !pass(far.get(), near.get(), false)) return;
    }
  }

  bool readable(int descriptor) {
    pollfd entry{descriptor, POLLIN, 0};
    while (!stop_)
      if (::poll(&entry, 1, 20) == 1) return true;
    return false;
  }

  bool pass(int from, int to, bool to_listener) {
    std::array<char, 65536> part{};
    const ssize_t count = ::recv(from, part.data(), part.size(), 0);
    if (count <= 0) return false;
    std::string bytes(part.data(), size_t(count));
    {
      const std::lock_guard lock(mutex_);
      captured_ += bytes;
    }
    if (meddle_) bytes = meddle_(bytes, to_listener);
    return ::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size());
  }

  std::string target_;
  Meddle meddle_;
  int turned_away_;
  Descriptor door_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::string captured_;
  std::thread thread_;
};

}  // namespace lockstep
