// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include "core/memory.h"
#include "core/stream.h"
#include "core/trace.h"
#include "kernels/view.h"

namespace lockstep {

/// A kernel is a value: its fields are its contract, check() its preconditions, and one overload of run() per
/// backend its implementation.
template <class K>
concept Kernel = requires(const K& kernel) {
  { K::name } -> std::convertible_to<const char*>;
  kernel.check();
};

/// Memory that a kernel has while it runs: as much as scratch_bytes(on, kernel), declared beside its run(),
/// says; null for none. A dry run counts it from there.
template <class On, Kernel K>
std::shared_ptr<std::byte> allocate_scratch(const On& on, const K& kernel) {
  const int64_t bytes = scratch_bytes(on, kernel);
  return bytes == 0 ? nullptr : allocate(bytes, on);
}

/// How many kernels this thread has launched: who lends memory to the next one knows by it that this is over.
inline uint64_t& launches_of_this_thread() {
  thread_local uint64_t launches = 0;
  return launches;
}

/// The one way a kernel is run: preconditions, trace range, backend of the stream. On a dry stream it does
/// not run, and its scratch memory is counted.
template <Kernel K>
void launch(const Stream& stream, const K& kernel) {
  kernel.check();
  ++launches_of_this_thread();
  const TraceRange range(K::name);
  std::visit(
      [&](const auto& on) {
        if (!on.mode.is_dry) return run(on, kernel);
        if constexpr (requires { scratch_bytes(on, kernel); }) allocate_scratch(on, kernel);
      },
      stream);
}

}  // namespace lockstep
