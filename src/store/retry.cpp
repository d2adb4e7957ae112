// SPDX-License-Identifier: Apache-2.0
#include "store/retry.h"

#include <chrono>

#include "core/log.h"
#include "core/text.h"
#include "program/signals.h"

namespace lockstep {
namespace {

constexpr double first_notice_seconds = 10.0;
constexpr double notice_interval_seconds = 60.0;

const RetryClock& real_clock() {
  static const RetryClock clock = {.now = Clock::now, .sleep = wait_unless_stopped};
  return clock;
}

}  // namespace

Outage::Outage(const RetryPolicy& policy)
    : policy_(policy), clock_(policy.clock ? *policy.clock : real_clock()), began_(clock_.now()) {}

void Outage::wait(const TransientError& problem) {
  const double seconds = std::chrono::duration<double>(clock_.now() - began_).count();
  const double left = policy_.outage_seconds - seconds;
  if (++failures_ >= policy_.attempts && left <= 0.0)
    throw Error(concat(problem.what(), " (given up after ", failures_, " attempts",
                       policy_.outage_seconds > 0.0 ? concat(" in ", fixed_text(seconds, 0), " s") : "",
                       ")"));
  const bool is_due = logged_at_seconds_ < 0.0 ? seconds >= first_notice_seconds
                                               : seconds - logged_at_seconds_ >= notice_interval_seconds;
  if (is_due && left > 0.0) {
    log_warning(concat(problem.what(), "; tried ", failures_, " times in ", fixed_text(seconds, 0),
                       " s; trying for another ", fixed_text(left, 0), " s"));
    logged_at_seconds_ = seconds;
  }
  clock_.sleep(policy_.delay_seconds(failures_));
}

}  // namespace lockstep
