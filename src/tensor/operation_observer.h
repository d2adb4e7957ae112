// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// The name of a cross entropy's losses of its rows, before their mean is taken.
inline constexpr const char* losses_of_rows = "losses";

/// An observer of the operations of a thread. Results have their values when it is called, but on a GPU only
/// for work queued from then on. It must not change them.
class OperationObserver {
 public:
  OperationObserver() = default;
  virtual ~OperationObserver() = default;
  OperationObserver(const OperationObserver&) = delete;
  OperationObserver& operator=(const OperationObserver&) = delete;

  /// Receives the result of an operation that may be recorded, or a result of it that has a name. `inputs`
  /// may have empty tensors.
  virtual void computed(const char* operation, const Tensor& y, std::span<const Tensor> inputs) = 0;
  /// Receives the gradient that an operation returns for its input `i`. `inputs` has the id() of each input,
  /// or null if it needs no gradient.
  virtual void differentiated(const char* operation, const Tensor& gradient, size_t i,
                              std::span<const void* const> inputs) = 0;

  /// Returns the observer of this thread, or null.
  static OperationObserver*& current() {
    thread_local OperationObserver* observer = nullptr;
    return observer;
  }
};

/// Shows a result to the observer of this thread, if there is one.
inline void observe_result(const char* operation, const Tensor& y, std::span<const Tensor> inputs = {}) {
  if (OperationObserver* const observer = OperationObserver::current())
    observer->computed(operation, y, inputs);
}

}  // namespace lockstep
