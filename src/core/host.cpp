// SPDX-License-Identifier: Apache-2.0
#include "core/host.h"

#include <climits>
#include <fstream>
#include <random>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "unknown";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

const std::string& process_mark() {
  static const std::string mark = concat(::getpid(), "-", std::random_device()());
  return mark;
}

}  // namespace lockstep
