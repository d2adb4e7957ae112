// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/stream.h"

#include <memory>
#include <vector>

namespace lockstep {
namespace {

struct ThreadState {
  // Earlier pools stay: tensors made on them may still be alive.
  std::vector<std::unique_ptr<detail::ThreadPool>> pools;
  Stream on_cpu;
  Stream current;

  void use(int threads) {
    for (const auto& pool : pools)
      if (pool->size() == threads) return set(*pool);
    set(*pools.emplace_back(std::make_unique<detail::ThreadPool>(threads)));
  }
  void set(detail::ThreadPool& pool) {
    const bool follows = device_of(current) == Device::cpu;
    on_cpu = CpuStream{&pool, mode_of(on_cpu)};
    if (follows) current = on_cpu;
  }
};

ThreadState& state() {
  thread_local ThreadState instance;
  if (instance.pools.empty()) instance.use(1);
  return instance;
}

}  // namespace

const Stream& current_stream() { return state().current; }

void set_current_stream(const Stream& stream) { state().current = stream; }

const Stream& cpu_stream() { return state().on_cpu; }

void set_threads(int threads) { state().use(threads); }

StreamModeScope::StreamModeScope(StreamMode mode, StreamMode on_cpu)
    : on_cpu_(state().on_cpu), current_(state().current) {
  const bool is_on_cpu = device_of(current_) == Device::cpu;
  std::visit([&](auto& on) { on.mode = is_on_cpu ? mode : on_cpu; }, state().on_cpu);
  std::visit([&](auto& on) { on.mode = mode; }, state().current);
}

StreamModeScope::~StreamModeScope() {
  state().on_cpu = on_cpu_;
  state().current = current_;
}

}  // namespace lockstep
