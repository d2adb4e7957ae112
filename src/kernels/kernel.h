// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

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

/// The one way a kernel is run: preconditions, trace range, backend of the stream.
template <Kernel K>
void launch(const Stream& stream, const K& kernel) {
  kernel.check();
  const TraceRange range(K::name);
  std::visit([&](const auto& on) { run(on, kernel); }, stream);
}

}  // namespace lockstep
