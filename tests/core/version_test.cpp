// SPDX-License-Identifier: Apache-2.0
#include "core/version.h"

#include <gtest/gtest.h>

#include "core/processor.h"

#if defined(__GLIBC__)
extern "C" const char* gnu_get_libc_version() noexcept;
#endif

namespace lockstep {
namespace {

TEST(ScopeOfBits, NamesEverythingThatMayRoundOtherwise) {
  const std::string scope = scope_of_bits();
  EXPECT_NE(scope.find("instruction set = " + instruction_set() + "\n"), std::string::npos) << scope;
  EXPECT_NE(scope.find("compiler = " __VERSION__ "\n"), std::string::npos) << scope;
  const char* products =
      has_bf16_unit() ? "products = bf16 by AMX, fp16 by fp32\n" : "products = 16 bits by fp32\n";
  EXPECT_NE(scope.find(products), std::string::npos) << scope;
#if defined(__GLIBC__)
  const std::string library = std::string("C library = glibc ") + gnu_get_libc_version() + "\n";
  EXPECT_NE(scope.find(library), std::string::npos) << scope;
#endif
}

}  // namespace
}  // namespace lockstep
