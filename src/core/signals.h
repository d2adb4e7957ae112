// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>

#include "core/descriptor.h"

namespace lockstep {

/// Signals that are read instead of handled. Made before other threads are, which then leave them alone too.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);

  /// For poll(): readable while a signal waits.
  int descriptor() const { return descriptor_.get(); }
  /// The number of the next signal.
  std::optional<int> next();

 private:
  Descriptor descriptor_;
};

}  // namespace lockstep
