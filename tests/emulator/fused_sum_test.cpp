// SPDX-License-Identifier: Apache-2.0
#include "emulator/fused_sum.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/core/dtype.h"
#include "lockstep/core/file.h"

namespace emulator {
namespace {

/// A product of tensor cores from tests/golden: what a published model of them computes.
struct Tile {
  float a[16][16], b[16][8], c[16][8];
  uint32_t d[16][8];
};

template <class Half>
Tile read_tile(const char* bytes) {
  Tile tile;
  const auto halves = [&](float* to, int count) {
    for (int i = 0; i < count; ++i, bytes += sizeof(Half)) {
      Half value;
      std::memcpy(&value, bytes, sizeof(Half));
      to[i] = static_cast<float>(value);
    }
  };
  halves(&tile.a[0][0], 256);
  halves(&tile.b[0][0], 128);
  std::memcpy(tile.c, bytes, sizeof(tile.c));
  std::memcpy(tile.d, bytes + sizeof(tile.c), sizeof(tile.d));
  return tile;
}

/// Returns the number of elements of a tile that differ in bits.
int differences(const Tile& tile, const TensorCore& core, int smallest) {
  int count = 0;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float sum = tile.c[row][column];
      for (int first = 0; first < 16; first += core.terms) {
        std::vector<Term> terms = {term_of(sum)};
        for (int k = first; k < first + core.terms; ++k)
          terms.push_back(product(term_of(tile.a[row][k], smallest), term_of(tile.b[k][column], smallest)));
        sum = fused_sum(terms, core.fraction_bits);
      }
      count += std::bit_cast<uint32_t>(sum) != tile.d[row][column];
    }
  return count;
}

TEST(FusedSum, GoldenTilesOfAmpereAndHopperAreEqual) {
  const std::string folder = LOCKSTEP_SOURCE_DIR "/tests/golden/mma_m16n8k16";
  const auto tiles = nlohmann::json::parse(lockstep::read_named_file(folder + ".json"));
  const std::string bytes = lockstep::read_named_file(folder + ".bin");
  ASSERT_EQ(tiles.size(), 16u);
  for (const auto& entry : tiles) {
    const bool is_ampere = entry.at("arch") == "Ampere", is_bf16 = entry.at("type") == "bf16";
    const char* at = bytes.data() + entry.at("offset").get<size_t>();
    const Tile tile = is_bf16 ? read_tile<lockstep::bfloat16>(at) : read_tile<lockstep::float16>(at);
    const int smallest = is_bf16 ? -126 : -14;
    EXPECT_EQ(differences(tile, tensor_core_of(is_ampere ? 8 : 9), smallest), 0) << entry;
    // The other family's sums differ, so the tiles tell one from the other.
    if (entry.at("kind") == "normal")
      EXPECT_GT(differences(tile, tensor_core_of(is_ampere ? 9 : 8), smallest), 0);
  }
}

float sum_of(std::initializer_list<float> numbers, int fraction_bits = 24) {
  std::vector<Term> terms;
  for (const float number : numbers) terms.push_back(term_of(number));
  return fused_sum(terms, fraction_bits);
}

TEST(FusedSum, CutsBelowTheLargestTermAndRoundsTowardZero) {
  EXPECT_EQ(sum_of({1.0f, 0x1p-24f, 0x1p-24f}), 1.0f + 0x1p-23f);
  EXPECT_EQ(sum_of({1.0f, 0x1p-25f, 0x1p-25f}), 1.0f) << "each is below the last place";
  EXPECT_EQ(sum_of({1.0f, 0x1p-25f, 0x1p-25f, 0x1p-25f, 0x1p-25f}, 25), 1.0f + 0x1p-23f);
  EXPECT_EQ(sum_of({-1.0f, -0x1.8p-24f}), -1.0f);
  EXPECT_EQ(sum_of({0x1p30f, -0x1p30f, 1.0f}), 0.0f) << "a small term is lost although the large ones cancel";
  EXPECT_FALSE(std::signbit(sum_of({-0.0f, 0.0f})));
  EXPECT_EQ(sum_of({0x1p-149f, 0x1p-149f}), 0x1p-148f) << "subnormal numbers count";
  EXPECT_EQ(sum_of({0x1.fp127f, 0x1.fp127f}), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace emulator
