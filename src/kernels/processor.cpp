// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/processor.h"

#include <atomic>
#include <fstream>

#if defined(LOCKSTEP_BF16_UNIT)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "lockstep/core/error.h"
#include "lockstep/core/version.h"

namespace lockstep {
namespace {

std::atomic<bool> is_using_bf16_unit = false;

bool ask_for_bf16_unit() {
#if defined(LOCKSTEP_BF16_UNIT)
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;  // leaf 7, edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & amx_bf16) == 0 || (edx & amx_tile) == 0) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

bool has_bf16_unit() {
  static const bool has = ask_for_bf16_unit();
  return has;
}

void use_bf16_unit(bool use) {
  expect(!use || has_bf16_unit(), "this process has no AMX");
  is_using_bf16_unit = use;
}

bool uses_bf16_unit() { return is_using_bf16_unit; }

std::string_view bf16_instructions() {
  if (uses_bf16_unit()) return "AMX";
#if defined(LOCKSTEP_BF16_WORDS)
  return "AVX512-BF16";
#else
  return {};
#endif
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return instruction_set();  // /proc/cpuinfo names the model of x86 processors only
}

}  // namespace lockstep
