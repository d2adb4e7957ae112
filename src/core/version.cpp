// SPDX-License-Identifier: Apache-2.0
#include "core/version.h"

#include <array>
#include <unistd.h>

#include "core/error.h"
#include "core/processor.h"

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

std::string scope_of_bits() {
  std::array<char, 64> library{"unknown"};
#if defined(_CS_GNU_LIBC_VERSION)
  ::confstr(_CS_GNU_LIBC_VERSION, library.data(), library.size());
#endif
  return concat("instruction set = ", instruction_set(), "\ncompiler = ", __VERSION__,
                "\nC library = ", library.data(),
                "\nproducts = ", has_bf16_unit() ? "bf16 by AMX, fp16 by fp32\n" : "16 bits by fp32\n");
}

std::string version_text() {
#if defined(__clang__)
  const std::string compiler = __VERSION__;
#else
  const std::string compiler = concat("GCC ", __VERSION__);
#endif
  return concat("Lockstep " LOCKSTEP_VERSION " (", compiler, ", ", instruction_set(),
                ", " LOCKSTEP_FEATURES ")");
}

}  // namespace lockstep
