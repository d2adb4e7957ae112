// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/chain.h"

#include <gtest/gtest.h>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"

namespace lockstep {
namespace {

RunChain example(const std::string& settings = "a = 1\n", const std::string& data = "corpus = 2\n") {
  RunChain chain = RunChain::begin(settings, data);
  chain.enter({.step = 0, .build = "build 1", .scope = "CPU"});
  chain.add(1, 2.5f);
  return chain;
}

TEST(RunChain, IsAHashOfTheLinkBeforeAndALine) {
  const std::string first = hash_text(hash_of("\nsettings\na = 1\n"));
  const std::string second = hash_text(hash_of(first + "\ndata\ncorpus = 2\n"));
  const std::string third = hash_text(hash_of(second + "\norigin 0\nbuild 1\nCPU"));
  EXPECT_EQ(example().link, hash_text(hash_of(third + "\nstep 1 loss 40200000")));
}

TEST(RunChain, DependsOnEveryPart) {
  const RunChain chain = example();
  EXPECT_NE(example("a = 2\n").link, chain.link);
  EXPECT_NE(example("a = 1\n", "corpus = 3\n").link, chain.link);
  RunChain other = example(), next = example();
  other.enter({.step = 1, .build = "build 2", .scope = "CPU"});
  EXPECT_NE(other.link, chain.link);
  next.add(2, 1.0f);
  RunChain last_bit = example();
  last_bit.add(2, 1.0f + std::numeric_limits<float>::epsilon());
  EXPECT_NE(next.link, last_bit.link);
}

TEST(RunChain, DoesNotDependOnARestartOfTheSameBuild) {
  RunChain chain = example();
  chain.enter({.step = 1, .build = "build 1", .scope = "CPU"});
  EXPECT_EQ(chain, example());
  chain.enter({.step = 1, .build = "build 1", .scope = "CPU with AMX"});
  ASSERT_EQ(chain.origins.size(), 2U);
  EXPECT_EQ(chain.origins[1].step, 1);
}

TEST(RunChain, OfARunThatBeganWithoutOneStaysEmpty) {
  RunChain chain;
  chain.enter({.step = 3, .build = "build 1", .scope = "CPU"});
  chain.add(4, 1.0f);
  EXPECT_EQ(chain, RunChain());
}

TEST(RunChain, GivesEveryNanTheSameBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(RunChain::bits_text(nan), RunChain::bits_text(-nan));
  EXPECT_NE(RunChain::bits_text(0.0f), RunChain::bits_text(-0.0f));
}

}  // namespace
}  // namespace lockstep
