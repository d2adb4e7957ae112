// SPDX-License-Identifier: Apache-2.0
#include "net/descriptor_limit.h"

#include <algorithm>
#include <sys/resource.h>

#include "core/error.h"

namespace lockstep {
namespace {

/// Some programs close every number up to the limit, so it is not raised to the millions that systems allow.
constexpr rlim_t plenty = 65536;

rlimit limits() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

size_t descriptor_limit() { return limits().rlim_cur; }

void provide_descriptors(size_t needed, const std::string& whose) {
  rlimit limit = limits();
  require(needed <= limit.rlim_max, whose, " need ", needed, " open files (descriptors), and ",
          limit.rlim_max,
          " are allowed: raise  ulimit -n  to that (where it is refused, the hard limit: nofile in "
          "/etc/security/limits.conf, LimitNOFILE of a service, --ulimit nofile of a container)");
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, std::max<rlim_t>(needed, plenty)));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace lockstep
