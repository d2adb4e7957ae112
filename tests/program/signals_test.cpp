// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/signals.h"

#include <csignal>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Signals, WhatSighupDidAtTheStartIsRestored) {
  restore_hangup();
  const auto handler = [] {
    struct sigaction now {};
    ::sigaction(SIGHUP, nullptr, &now);
    return now.sa_handler;
  };
  const auto first = handler();
  std::signal(SIGHUP, [](int) {});
  ASSERT_NE(handler(), first);
  restore_hangup();
  EXPECT_EQ(handler(), first);
}

}  // namespace
}  // namespace lockstep
