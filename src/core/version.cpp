// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/version.h"

#include "lockstep/core/error.h"

namespace lockstep {

std::string instruction_set() {
  std::string text;
#if defined(__x86_64__)
  text = "x86-64";
#elif defined(__aarch64__)
  text = "aarch64";
#endif
#if defined(__AVX512F__)
  text += " avx512f";
#elif defined(__AVX2__)
  text += " avx2";
#endif
#if defined(__FMA__)
  text += " fma";
#endif
  return text;
}

std::string version_text() {
#if defined(__clang__)
  const std::string compiler = __VERSION__;
#else
  const std::string compiler = concat("GCC ", __VERSION__);
#endif
  return concat("Lockstep " LOCKSTEP_VERSION " (arithmetic ", arithmetic_version, ", ", compiler, ", ",
                instruction_set(), ", " LOCKSTEP_FEATURES ")");
}

}  // namespace lockstep
