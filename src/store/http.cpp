// SPDX-License-Identifier: Apache-2.0
#include "lockstep/store/http.h"

#include <chrono>
#include <optional>

#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/program/signals.h"

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

std::vector<std::string> range_header(int64_t begin, int64_t bytes) {
  constexpr int64_t all = ObjectReader::all_bytes;
  if (begin == 0 && bytes == all) return {};
  return {concat("Range: bytes=", begin, "-", begin + std::min(bytes, all - begin) - 1)};
}

void cut_to_range(HttpReply& reply, int64_t begin, int64_t bytes) {
  if (reply.status != 206) {
    const int64_t size = std::ssize(reply.body), from = std::min(begin, size);
    reply.body.resize(static_cast<size_t>(from + std::min(bytes, size - from)));
    reply.body.erase(0, static_cast<size_t>(from));
    return;
  }
  // "bytes 100-199/1000". The size behind the slash is "*" if the server does not know it.
  const std::string& range = reply.headers["content-range"];
  const size_t space = range.find(' '), dash = range.find('-'), slash = range.find('/');
  const auto number = [&](size_t from, size_t to) {
    return from == std::string::npos || to == std::string::npos || from >= to
               ? std::nullopt
               : number_in<int64_t>(range.substr(from + 1, to - from - 1));
  };
  const auto first = number(space, dash), last = number(dash, slash), all = number(slash, range.size());
  const int64_t wanted = std::min(bytes, all.value_or(begin + std::ssize(reply.body)) - begin);
  const bool is_whole = first == begin && last == begin + wanted - 1 && std::ssize(reply.body) == wanted;
  if (!is_whole)
    throw TransientError(concat("bytes from ", begin, " on were requested, but the server sent ",
                                reply.body.size(), " bytes, \"", range.substr(0, 80), "\""));
}

}  // namespace lockstep
