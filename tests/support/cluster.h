// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

/// Skips a test of the label cluster that this machine cannot run, with the reason. With
/// LOCKSTEP_CLUSTER_TESTS=required, as in CI, the test fails instead. It is a macro because it returns from
/// the test.
#define LOCKSTEP_SKIP_OR_FAIL(reason)                                \
  do {                                                               \
    const char* wanted = std::getenv("LOCKSTEP_CLUSTER_TESTS");      \
    if (wanted != nullptr && std::string(wanted) == "required")      \
      FAIL() << "LOCKSTEP_CLUSTER_TESTS=required, but " << (reason); \
    GTEST_SKIP() << (reason);                                        \
  } while (false)
