// SPDX-License-Identifier: Apache-2.0
#include "core/host.h"

#include <climits>
#include <unistd.h>

namespace lockstep {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "unknown";
}

}  // namespace lockstep
