// SPDX-License-Identifier: Apache-2.0
#include "emulator/block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/core/error.h"

namespace emulator {

thread_local Block* running_block = nullptr;
thread_local Block* watched_block = nullptr;

Block::Block() : stacks(most_threads) {
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i].number = static_cast<int>(i);
    threads[i].lane = static_cast<int>(i % warp_size);
    threads[i].warp = &warps[i / warp_size];
  }
  for (size_t i = 0; i < warps.size(); ++i) warps[i].lanes = &threads[i * warp_size];
}

void Block::run(const Launch& grid, uint3 at) {
  launch = &grid;
  index = at;
  epochs.begin_block();
  shared.begin_block(grid.shared_bytes);
  start_threads();
  running = next_ready();
  watched_block = this;
  emulator_switch(&host_stack_pointer, running->stack_pointer);
  stop_watching();
  running = nullptr;
  if (exception) std::rethrow_exception(std::exchange(exception, nullptr));
  if (!failure.empty()) throw lockstep::Error(std::exchange(failure, {}));
}

void Block::start_threads() {
  const dim3 extent = launch->threads;
  alive = static_cast<int>(extent.x * extent.y * extent.z);
  waiting = 0;
  first_ready_ = ready_count_ = 0;
  for (int i = 0; i < alive; ++i) {
    Thread& thread = threads[static_cast<size_t>(i)];
    const auto number = static_cast<unsigned>(i);
    thread.index = {number % extent.x, number / extent.x % extent.y, number / extent.x / extent.y};
    thread.stack_pointer = stacks.prepare(i, &Block::enter);
    thread.waits = Thread::Waits::no;
    thread.copies.clear();
    thread.copy_groups.clear();
    make_ready(thread);
  }
  for (int first = 0; first < alive; first += warp_size) {
    Warp& warp = warps[static_cast<size_t>(first / warp_size)];
    const int lanes = std::min(alive - first, warp_size);
    warp.present = lanes == warp_size ? ~0u : (1u << lanes) - 1;
    warp.waiting = 0;
    warp.clock.reset();
  }
}

void Block::enter() {
  Block& block = *running_block;
  try {
    block.launch->call(block.launch->arguments);
  } catch (...) {
    stop_watching();
    block.exception = std::current_exception();
    block.leave();
  }
  block.exit_thread();
}

void Block::exit_thread() {
  Thread& self = *running;
  Warp& warp = *self.warp;
  self.waits = Thread::Waits::gone;
  --alive;
  warp.present &= ~(1u << self.lane);
  if (waiting > 0 && waiting == alive) complete_barrier();
  // Lanes that wait for this one may now complete, or their operation may now be an error.
  for (int lane = 0; lane < warp_size && warp.waiting != 0; ++lane) {
    if (!(warp.waiting >> lane & 1)) continue;
    const Thread& other = warp.lanes[lane];
    if (can_complete(warp, *other.warp_operation, other.mask))
      complete(warp, *other.warp_operation, other.mask);
  }
  if (alive == 0) leave();
  running = next_ready();
  if (running == nullptr) {
    stop_watching();
    failure = describe_deadlock();
    leave();
  }
  emulator_switch(&self.stack_pointer, running->stack_pointer);
  __builtin_unreachable();
}

void Block::leave() {
  void* abandoned = nullptr;
  emulator_switch(&abandoned, host_stack_pointer);
  __builtin_unreachable();
}

void Block::fail_with(const std::string& what) {
  failure = lockstep::concat("emulator: ", what, " in ", describe_running());
  leave();
}

void Block::make_ready(Thread& thread) {
  thread.waits = Thread::Waits::no;
  const int end = (first_ready_ + ready_count_++) % most_threads;
  ready_[static_cast<size_t>(end)] = static_cast<uint16_t>(thread.number);
}

Thread* Block::next_ready() {
  if (ready_count_ == 0) return nullptr;
  if (random != 0) {
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    const int chosen =
        (first_ready_ + static_cast<int>(random % static_cast<uint32_t>(ready_count_))) % most_threads;
    std::swap(ready_[static_cast<size_t>(chosen)], ready_[static_cast<size_t>(first_ready_)]);
  }
  Thread& thread = threads[ready_[static_cast<size_t>(first_ready_)]];
  first_ready_ = (first_ready_ + 1) % most_threads;
  --ready_count_;
  return &thread;
}

void Block::give_way() {
  Thread& self = *running;
  Thread* next = next_ready();
  if (next == nullptr) {
    stop_watching();
    failure = describe_deadlock();
    leave();
  }
  running = next;
  if (next != &self) emulator_switch(&self.stack_pointer, next->stack_pointer);
}

int Block::wait_for_block(const char* operation, bool predicate, Site site) {
  Thread& self = *running;
  self.waits = Thread::Waits::for_block;
  self.operation = operation;
  self.site = site;
  self.predicate = predicate;
  if (++waiting == alive) complete_barrier();
  give_way();
  return self.result;
}

void Block::complete_barrier() {
  const Thread* first = nullptr;
  const int count = static_cast<int>(launch->threads.x * launch->threads.y * launch->threads.z);
  int holds = 0;
  for (int i = 0; i < count; ++i) {
    const Thread& thread = threads[static_cast<size_t>(i)];
    if (thread.waits != Thread::Waits::for_block) continue;
    if (first == nullptr) first = &thread;
    if (thread.site.line != first->site.line || std::strcmp(thread.site.file, first->site.file) != 0)
      fail([&] {
        return lockstep::concat("divergent barrier: thread ", first->number, " waits at ", first->operation,
                                " (", describe(first->site), "), thread ", thread.number, " at ",
                                thread.operation, " (", describe(thread.site), "),");
      });
    holds += thread.predicate ? 1 : 0;
  }
  waiting = 0;
  epochs.pass_barrier();
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads[static_cast<size_t>(i)];
    if (thread.waits != Thread::Waits::for_block) continue;
    thread.result = holds;
    make_ready(thread);
  }
}

void Block::meet(const WarpOperation& operation, const char* name, uint32_t mask, void* operand, Site site) {
  Thread& self = *running;
  Warp& warp = *self.warp;
  self.operation = name;
  self.warp_operation = &operation;
  self.mask = mask;
  self.operand = operand;
  self.site = site;
  const uint32_t bit = 1u << self.lane;
  if (!(mask & bit))
    fail([&] {
      return lockstep::concat("shuffle: ", name, " (", describe(site),
                              ") is called by a lane that its mask leaves out,");
    });
  self.waits = Thread::Waits::for_warp;
  warp.waiting |= bit;
  if (can_complete(warp, operation, mask)) complete(warp, operation, mask);
  give_way();
}

bool Block::can_complete(Warp& warp, const WarpOperation& operation, uint32_t mask) {
  if (const uint32_t missing = mask & ~warp.present; missing != 0 && !operation.tolerates_exited) {
    const Thread& waiter = warp.lanes[__builtin_ctz(warp.waiting & mask)];
    fail([&] {
      return lockstep::concat("shuffle: ", waiter.operation, " (", describe(waiter.site), ") names lane ",
                              __builtin_ctz(missing), ", which does not exist or has exited,");
    });
  }
  return (warp.waiting & mask) == (mask & warp.present) && (mask & warp.present) != 0;
}

void Block::check_lanes(const Warp& warp, const WarpOperation& operation, uint32_t mask) {
  for (uint32_t left = mask & warp.present; left != 0; left &= left - 1) {
    const Thread& thread = warp.lanes[__builtin_ctz(left)];
    if (thread.mask == mask && thread.warp_operation == &operation) continue;
    fail([&] {
      return lockstep::concat("shuffle: lanes of one mask do different things: lane ", thread.lane,
                              " waits at ", thread.operation, " (", describe(thread.site), "), others at ",
                              running->operation, ",");
    });
  }
}

void Block::complete(Warp& warp, const WarpOperation& operation, uint32_t mask) {
  check_lanes(warp, operation, mask);
  mask &= warp.present;
  if (operation.orders_memory) warp.clock.meet(mask, mask == warp.present);
  if (operation.complete) operation.complete(warp, mask);
  warp.waiting &= ~mask;
  for (uint32_t left = mask; left != 0; left &= left - 1) make_ready(warp.lanes[__builtin_ctz(left)]);
}

std::string Block::describe_deadlock() const {
  // Groups of threads that wait at the same place, sorted by their first thread.
  struct Group {
    std::string what, who;
    int last;
    int ranges = 0;
  };
  constexpr int most_ranges = 8;
  std::vector<Group> groups;
  const auto count = launch->threads.x * launch->threads.y * launch->threads.z;
  for (unsigned i = 0; i < count; ++i) {
    const Thread& thread = threads[i];
    const std::string what =
        thread.waits == Thread::Waits::gone
            ? "have exited"
            : lockstep::concat("wait at ", thread.operation, " (", describe(thread.site), ")");
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.what == what; });
    if (group == groups.end()) group = groups.insert(group, {what, "", thread.number - 2});
    const bool follows = group->last + 1 == thread.number;
    const bool goes_on = i + 1 < count && threads[i + 1].waits == thread.waits &&
                         threads[i + 1].operation == thread.operation &&
                         threads[i + 1].site.line == thread.site.line;
    if (!follows && ++group->ranges <= most_ranges)
      group->who += lockstep::concat(group->who.empty() ? " " : ", ", thread.number, goes_on ? " to " : "");
    else if (follows && !goes_on && group->ranges <= most_ranges)
      group->who += std::to_string(thread.number);
    group->last = thread.number;
  }
  std::string text = "emulator: deadlock: no thread can continue in ";
  text += describe_running();
  for (const Group& group : groups)
    text += "\n  threads" + group.who + (group.ranges > most_ranges ? ", ... " : " ") + group.what;
  return text;
}

}  // namespace emulator
