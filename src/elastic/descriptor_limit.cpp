// SPDX-License-Identifier: Apache-2.0
#include "elastic/descriptor_limit.h"

#include <algorithm>
#include <sys/resource.h>

#include "core/error.h"

namespace lockstep {
namespace {

/// Some programs close every number up to the limit, so it is not raised to the millions that systems allow.
constexpr rlim_t plenty = 65536;
/// What lockrun and mpirun have open besides.
constexpr rlim_t fixed = 48;
/// mpirun and Open MPI's daemons have a terminal, pipes and a connection for each rank on their host.
constexpr rlim_t for_each_here = 4;

rlimit limits() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}

}  // namespace

size_t descriptor_limit() { return limits().rlim_cur; }

void provide_descriptors(int ranks, int here) {
  const rlim_t needed = fixed + std::max(rlim_t(ranks), for_each_here * rlim_t(here));
  rlimit limit = limits();
  require(needed <= limit.rlim_max, "lockrun: ", ranks, " ranks need ", needed,
          " open files (descriptors), and ", limit.rlim_max,
          " are allowed: raise  ulimit -n  to that (where it is refused, the hard limit: nofile in "
          "/etc/security/limits.conf, LimitNOFILE of a service, --ulimit nofile of a container)");
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, std::max(needed, plenty)));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace lockstep
