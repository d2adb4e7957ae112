// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/core/clock.h"
#include "lockstep/net/channel.h"
#include "lockstep/net/secret.h"

namespace lockstep {

/// A listener for channels on one address. A peer that does not know the secret is refused; at most one log
/// line a second says so. Neither a silent connection nor a flood of strangers delays the caller or others.
class Listener {
 public:
  /// Listens at an address (port 0: any). Throws UserError if it is not this host's or the port is taken.
  Listener(const std::string& address, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string endpoint() const { return socket_.address().text(); }
  /// A descriptor for poll(). While it is readable, call accept(secret, 0).
  int descriptor() const { return events_.get(); }
  /// Returns the next channel whose other side knows the secret; null if there is none in time. With a
  /// timeout of 0 it looks at a few connections only. The descriptor stays readable if there are more.
  std::unique_ptr<Channel> accept(const Secret& secret, double timeout_seconds);

 private:
  /// A connection that has not proved anything yet.
  struct Stranger;
  using Strangers = std::map<uint64_t, Stranger>;  ///< by number, in order of arrival

  void welcome();
  std::unique_ptr<Channel> hear(Strangers::iterator stranger, const Secret& secret);
  void dismiss(Strangers::iterator stranger, const std::string& reason);
  void dismiss_silent();
  void rest(int problem);
  void go_on();
  void log_refusals();

  Socket socket_;
  Descriptor events_;
  Strangers strangers_;
  size_t most_strangers_;
  uint64_t last_number_ = 0;
  std::optional<Clock::time_point> resting_until_;  ///< no connections are accepted before that
  bool has_told_of_resting_ = false;
  uint64_t refusals_ = 0;  ///< not logged yet
  std::string last_refusal_;
  Clock::time_point next_word_{};
};

}  // namespace lockstep
