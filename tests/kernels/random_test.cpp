// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/random.h"

#include <gtest/gtest.h>
#include <set>

namespace lockstep {
namespace {

using Words = std::array<uint32_t, 4>;

constexpr uint32_t ones = 0xffffffffu;
constexpr uint64_t pi_key = 0x299f31d0a4093822u;
constexpr Words pi_counter{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u};

// The published known answers of the generator (Salmon et al. 2011): zeros, ones, and the digits of pi.
TEST(Philox, TenRoundsGiveTheKnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox(~uint64_t{0}, {ones, ones, ones, ones}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox(pi_key, pi_counter), (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, SevenRoundsGiveTheKnownAnswers) {
  EXPECT_EQ(philox<7>(0, {0, 0, 0, 0}), (Words{0x5f6fb709u, 0x0d893f64u, 0x4f121f81u, 0x4f730a48u}));
  EXPECT_EQ(philox<7>(~uint64_t{0}, {ones, ones, ones, ones}),
            (Words{0x5207ddc2u, 0x45165e59u, 0x4d8ee751u, 0x8c52f662u}));
  EXPECT_EQ(philox<7>(pi_key, pi_counter), (Words{0x4dfccabau, 0x190a87f0u, 0xc47362bau, 0xb6b5242au}));
}

TEST(Philox, KeysOfDifferentPlacesDiffer) {
  std::set<uint64_t> keys;
  size_t count = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}})
    for (uint32_t site = 0; site < 40; ++site)
      for (uint32_t lane = 0; lane < 16; ++lane, ++count) keys.insert(derive_key(seed, site, lane));
  EXPECT_EQ(keys.size(), count);
  static_assert(derive_key(1, 2, 3) == derive_key(1, 2, 3));
}

TEST(Philox, UniformNumbersFillTheUnitInterval) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_EQ(uniform_float(255), 0.0f);
  EXPECT_EQ(uniform_float(256), 0x1p-24f);
  EXPECT_EQ(uniform_float(ones), 1.0f - 0x1p-24f);
}

}  // namespace
}  // namespace lockstep
