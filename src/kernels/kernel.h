// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <typeinfo>

#include "lockstep/core/memory.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/trace.h"
#include "lockstep/kernels/view.h"

namespace lockstep {

/// A kernel is a value. Its fields are its contract and check() tests its preconditions. Each backend
/// implements it by an overload of run().
template <class K>
concept Kernel = requires(const K& kernel) {
  { K::name } -> std::convertible_to<const char*>;
  kernel.check();
};

/// Allocates the memory that a kernel needs while it runs. Returns null if it needs none. scratch_bytes(on,
/// kernel) gives the size and is declared next to the kernel's run(). A dry run counts the memory here.
template <class On, Kernel K>
std::shared_ptr<std::byte> allocate_scratch(const On& on, const K& kernel) {
  const int64_t bytes = scratch_bytes(on, kernel);
  return bytes == 0 ? nullptr : allocate(bytes, on);
}

/// Returns the number of kernels launched by this thread. A buffer lent to the next kernel is free once this
/// counter has advanced.
inline uint64_t& launches_of_this_thread() {
  thread_local uint64_t launches = 0;
  return launches;
}

/// Returns this thread's observer of kernels, which may be empty. It is called before each kernel that is not
/// dry, with typeid(K) and the address of the K.
inline std::function<void(const std::type_info&, const void*)>& launch_observer() {
  thread_local std::function<void(const std::type_info&, const void*)> observer;
  return observer;
}

/// Runs a kernel: checks its preconditions, opens a trace range and calls the backend of the stream. This is
/// the only way to run a kernel. A dry stream does not run the kernel but counts its scratch memory.
template <Kernel K>
void launch(const Stream& stream, const K& kernel) {
  kernel.check();
  ++launches_of_this_thread();
  const TraceRange range(K::name);
  if (const auto& observe = launch_observer(); observe && !mode_of(stream).is_dry)
    observe(typeid(K), &kernel);
  std::visit(
      [&](const auto& on) {
        if (!on.mode.is_dry) return run(on, kernel);
        if constexpr (requires { scratch_bytes(on, kernel); }) allocate_scratch(on, kernel);
      },
      stream);
}

}  // namespace lockstep
