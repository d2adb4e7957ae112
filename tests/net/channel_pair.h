// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "lockstep/net/listener.h"

namespace lockstep {

constexpr double soon = 30.0;

/// Both ends of a channel. It runs through a relay if `endpoint` is the relay's.
struct Pair {
  std::unique_ptr<Channel> listener_side;
  std::unique_ptr<Channel> connector_side;

  Pair(Listener& listener, const Secret& secret, const std::string& endpoint) {
    auto connecting = std::async(std::launch::async, [&] {
      return std::make_unique<Channel>(connect_channel(endpoint, secret, soon));
    });
    listener_side = listener.accept(secret, soon);
    connector_side = connecting.get();
  }
};

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace lockstep
