// SPDX-License-Identifier: Apache-2.0
#include "elastic/stop_request.h"

#include <csignal>
#include <poll.h>

#include "core/error.h"
#include "core/log.h"

namespace lockstep {

bool StopRequest::has_signal() const {
  pollfd entry{descriptor(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void StopRequest::hear() {
  while (const auto number = signals_.next()) {
    // Batch systems repeat requests with several signals. Only a repeated SIGINT, from a user, ends at once.
    interruptions_ += *number == SIGINT;
    ask();
  }
}

void StopRequest::ask(const std::string& where) {
  if (asked_) return;
  asked_ = Clock::now();
  if (!where.empty()) log_info(concat("lockrun: ", where, " was asked to stop the run"));
}

}  // namespace lockstep
