// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/watchdog.h"

#include <chrono>
#include <optional>
#include <utility>

#include "lockstep/comm/flight_recorder.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/text.h"

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
  // A call of CUDA may block. So none is made under the mutex, which the other thread needs.
  std::unique_ptr<Work> work = idle_work();
  work->name = name;
  work->bytes = bytes;
  work->has_begun = std::move(has_begun);
  work->is_queued = false;
  work->seen.reset();
  work->begin.record(stream);
  Work& queued = *work;
  {
    const std::lock_guard lock(mutex_);
    work->sequence = host_.recorder().begin(name, bytes);
    running_.push_back(std::move(work));
  }
  try {
    enqueue();
  } catch (const Error&) {
    check();  // throws the cause if the watchdog has found it
    throw;
  }
  queued.end.record(stream);
  const std::lock_guard lock(mutex_);
  queued.is_queued = true;
}

std::unique_ptr<Watchdog::Work> Watchdog::idle_work() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Work>();
  std::unique_ptr<Work> work = std::move(idle_.front());
  idle_.pop_front();
  return work;
}

void Watchdog::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
}

void Watchdog::serve() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period, [this] { return stopping_; })) {
    lock.unlock();
    std::string message;
    try {
      message = look();
    } catch (const Error& failure) {
      message = failure.what();
    }
    if (!message.empty()) return fail(message);
    lock.lock();
  }
}

std::string Watchdog::look() {
  const std::string error = transport_.background_error();
  while (true) {
    Work* oldest = nullptr;
    bool is_queued = false;
    {
      const std::lock_guard lock(mutex_);
      if (!running_.empty()) oldest = running_.front().get();
      is_queued = oldest != nullptr && oldest->is_queued;
    }
    if (oldest == nullptr) return error;
    if (!is_queued || !oldest->end.has_passed()) return problem_of(*oldest, error);
    const std::lock_guard lock(mutex_);
    host_.recorder().end(oldest->sequence);
    idle_.push_back(std::move(running_.front()));
    running_.pop_front();
  }
}

std::string Watchdog::problem_of(Work& work, const std::string& background_error) {
  std::string problem = background_error;
  if (problem.empty()) {
    const bool has_begun = work.has_begun ? work.has_begun() : work.begin.has_passed();
    if (!has_begun) return {};
    if (!work.seen) work.seen = Clock::now();
    if (Clock::now() - *work.seen < std::chrono::duration<double>(host_.timeout())) return {};
    problem = concat("waited ", host_.timeout(), " s for the other ranks (", option_name("timeout_s"), ")");
  }
  return host_.failure_of(work.name, work.bytes, work.sequence, problem);
}

void Watchdog::fail(const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = message;
  }
  report_and_end_soon({message});
  host_.cancel();
  transport_.break_off();
}

}  // namespace lockstep
