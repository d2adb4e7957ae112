// SPDX-License-Identifier: Apache-2.0
#include "core/processor.h"

#if defined(__AMX_BF16__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/environment.h"

namespace lockstep {
namespace {

bool ask_for_bf16_unit() {
#if defined(__AMX_BF16__) && defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return environment("LOCKSTEP_BF16_UNIT") != "off" &&
         ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_bf16_unit() {
  static const bool has = ask_for_bf16_unit();
  return has;
}

}  // namespace lockstep
