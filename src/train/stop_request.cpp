// SPDX-License-Identifier: Apache-2.0
#include "train/stop_request.h"

#include <atomic>
#include <csignal>

namespace lockstep {
namespace {

// A signal's handler may touch nothing else.
std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void request_stop(int) { requested.store(true); }

}  // namespace

void listen_for_stop_requests() {
  struct sigaction action {};
  action.sa_handler = request_stop;
  // Reads and writes that a signal interrupts go on by themselves.
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGTERM, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

bool stop_was_requested() { return requested.load(); }

}  // namespace lockstep
