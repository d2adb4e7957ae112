// SPDX-License-Identifier: Apache-2.0
#include "comm/watchdog.h"

#include <chrono>
#include <optional>
#include <utility>

#include "comm/world.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/stream.h"

namespace lockstep {
namespace {

constexpr auto period = std::chrono::milliseconds(100);

}  // namespace

struct Watchdog::Work {
  const char* name = "";
  int64_t bytes = 0;
  uint64_t sequence = 0;
  Event begin, end;
  std::function<bool()> has_begun;
  bool is_queued = false;
  std::optional<Clock::time_point> seen;  ///< when it was first seen running
};

Watchdog::Watchdog(Communicator& host, Transport transport)
    : host_(host), transport_(std::move(transport)), thread_([this] { serve(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void Watchdog::watch(const char* name, int64_t bytes, const Stream& stream,
                     const std::function<void()>& enqueue, std::function<bool()> has_begun) {
  if (is_recording_graph()) return enqueue();
  check();
  Work* work = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) idle_.push_back(std::make_unique<Work>());
    work = running_.emplace_back(std::move(idle_.front())).get();
    idle_.pop_front();
    work->name = name;
    work->bytes = bytes;
    work->has_begun = std::move(has_begun);
    work->is_queued = false;
    work->seen.reset();
    work->sequence = host_.recorder().begin(name, bytes);
    work->begin.record(stream);
  }
  try {
    enqueue();
  } catch (const Error&) {
    check();  // throws the cause if the watchdog has found it
    throw;
  }
  const std::lock_guard lock(mutex_);
  work->end.record(stream);
  work->is_queued = true;
}

void Watchdog::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
}

void Watchdog::serve() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period, [this] { return stopping_; })) {
    std::string message;
    try {
      const std::string error = transport_.background_error();
      retire_finished();
      message = problem(error);
    } catch (const Error& failure) {
      message = failure.what();
    }
    if (!message.empty()) return fail(message, lock);
  }
}

void Watchdog::retire_finished() {
  while (!running_.empty() && running_.front()->is_queued && running_.front()->end.has_passed()) {
    host_.recorder().end(running_.front()->sequence);
    idle_.push_back(std::move(running_.front()));
    running_.pop_front();
  }
}

std::string Watchdog::problem(const std::string& background_error) {
  if (running_.empty()) return background_error;
  Work& oldest = *running_.front();
  std::string problem = background_error;
  if (problem.empty()) {
    const bool has_begun = oldest.has_begun ? oldest.has_begun() : oldest.begin.has_passed();
    if (!has_begun) return {};
    if (!oldest.seen) oldest.seen = Clock::now();
    if (Clock::now() - *oldest.seen < std::chrono::duration<double>(host_.timeout())) return {};
    problem = concat("waited ", host_.timeout(), " s for the other ranks (dist.timeout_s)");
  }
  return host_.failure_of(oldest.name, oldest.bytes, oldest.sequence, problem);
}

void Watchdog::fail(const std::string& message, std::unique_lock<std::mutex>& lock) {
  failure_ = message;
  lock.unlock();
  report_and_end_soon({message});
  host_.cancel();
  transport_.break_off();
}

}  // namespace lockstep
