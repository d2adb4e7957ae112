// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

/// Returns four random words, a pure function of key and counter: Philox4x32 (Salmon et al. 2011). Seven
/// rounds are the fewest that pass BigCrush; ten are the customary margin.
template <int rounds = 10>
constexpr std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> counter) {
  uint32_t low_key = static_cast<uint32_t>(key);
  uint32_t high_key = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < rounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ low_key, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ high_key,
               static_cast<uint32_t>(product0)};
    low_key += 0x9E3779B9u;
    high_key += 0xBB67AE85u;
  }
  return counter;
}

/// Returns a key for one series of draws. It is a pure function of the run's seed, the site in the model, and
/// a lane within it (an attention head, for example).
constexpr uint64_t derive_key(uint64_t seed, uint32_t site, uint32_t lane) {
  const auto words = philox(seed, {site, lane, 0x4c6f636bu, 0x73746570u});
  return (uint64_t{words[1]} << 32) | words[0];
}

/// Lanes for initial values and for sampling text. No attention head has these numbers.
inline constexpr uint32_t initialization_lane = 0xffffffffu;
inline constexpr uint32_t sampling_lane = 0xfffffffeu;

/// Returns a uniform value in [0, 1) with 24 bits.
constexpr float uniform_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// The key of a random draw in a training step. It does not depend on ranks, threads or tiles.
struct RandomKey {
  uint64_t seed = 0;
  uint32_t step = 0;    ///< iterations since the start of the run
  uint32_t sample = 0;  ///< index of the first input sample in the global batch
  uint32_t site = 0;    ///< identifies the draw in the model: layer and place
  /// The address of the step on a GPU, if not null. A recorded graph reads each launch's step there.
  const uint32_t* device_step = nullptr;
};

}  // namespace lockstep
