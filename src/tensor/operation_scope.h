// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/core/error.h"

namespace lockstep {

/// A scope that names the operation which this thread runs. The messages of errors begin with the name of the
/// outermost scope. So an error of any depth names the function that the user called.
class OperationScope {
 public:
  /// `name` and `role` must outlive the scope. The role comes first: "the gradient of ".
  explicit OperationScope(const char* name, const char* role = "") {
    detail::RunningOperation& running = detail::running_operation();
    is_outermost_ = running.name == nullptr;
    if (is_outermost_) running = {role, name};
  }
  ~OperationScope() {
    if (is_outermost_) detail::running_operation() = {};
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  bool is_outermost_;
};

}  // namespace lockstep
