// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.h"
#include "net/channel.h"
#include "net/secret.h"

namespace lockstep {

/// Waits for channels on one address. Who does not know the secret is refused, and told of in at most one
/// line a second. Neither who connects and says nothing nor a flood of strangers keeps the caller or others
/// waiting.
class Listener {
 public:
  /// Port 0: the system chooses. UserError if the address is not this host's or the port is taken.
  Listener(const std::string& address, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string endpoint() const { return socket_.address().text(); }
  /// For poll(): while it is readable, accept(secret, 0).
  int descriptor() const { return events_.get(); }
  /// The next channel whose other side knows the secret; null if there is none in time. With a time of 0 it
  /// looks at a few connections only, and the descriptor stays readable if there are more.
  std::unique_ptr<Channel> accept(const Secret& secret, double timeout_seconds);

 private:
  /// Somebody who is connected and has not proved anything yet.
  struct Stranger;
  using Strangers = std::map<uint64_t, Stranger>;  ///< by number, in the order they came

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
  std::optional<Clock::time_point> resting_until_;  ///< no connections are taken before that
  bool has_told_of_resting_ = false;
  uint64_t refusals_ = 0;  ///< that nobody was told of yet
  std::string last_refusal_;
  Clock::time_point next_word_{};
};

}  // namespace lockstep
