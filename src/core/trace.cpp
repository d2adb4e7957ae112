// SPDX-License-Identifier: Apache-2.0
#include "core/trace.h"

namespace lockstep {

Trace& Trace::current() {
  thread_local Trace trace;
  return trace;
}

}  // namespace lockstep
