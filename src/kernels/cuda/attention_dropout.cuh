// SPDX-License-Identifier: Apache-2.0
#pragma once

// The mask of attention dropout. One call of Philox decides on eight neighbouring keys of one query. Each
// lane makes a different call and turns it into a byte of keep bits. Lanes exchange these bytes by shuffles.
// So a warp makes one call for eight scores in each layout below, and repeats none.

#include "lockstep/kernels/cuda/attention_problem.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/random.h"

namespace lockstep::cuda::attention {

/// The mask of one query head of this block's sample. Nothing is drawn if `dropped` is false.
template <bool dropped>
class Mask {
 public:
  LOCKSTEP_DEVICE Mask(const Dropout& dropout, int head) {
    if constexpr (dropped) {
      // ptxas would derive the key again in each iteration of a loop, but it keeps the result of a shuffle.
      const uint64_t key = derive_key(dropout.seed, dropout.site, static_cast<uint32_t>(head));
      const uint32_t high = __shfl_sync(all_lanes, static_cast<uint32_t>(key >> 32), 0);
      key_ = uint64_t{high} << 32 | __shfl_sync(all_lanes, static_cast<uint32_t>(key), 0);
      sample_ = dropout.sample + blockIdx.z;
      step_ = dropout.device_step ? *dropout.device_step : dropout.step;
      threshold_ = dropout.threshold;
    }
  }

  /// Draws the keep bits of eight keys for one query. Bit i is set if the weight of key 8 * group + i is
  /// kept.
  LOCKSTEP_DEVICE uint32_t draw(int query, int group) const {
    const auto words =
        philox<7>(key_, {static_cast<uint32_t>(group), static_cast<uint32_t>(query), sample_, step_});
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits |= ((words[i] & 0xffffu) >= threshold_ ? 1u : 0u) << (2 * i);
      bits |= ((words[i] >> 16) >= threshold_ ? 2u : 0u) << (2 * i);
    }
    return bits;
  }

  /// Returns keep bits for accumulators whose rows are queries. `query` is the lane's row, and `first_key` is
  /// the first key of four neighbouring column tiles. Bit 8 n + i is set if column p + i of tile n is kept,
  /// with p = 2 (lane % 4).
  LOCKSTEP_DEVICE uint32_t of_four_tiles(int query, int first_key) const {
    const int quarter = lane_index() % 4;
    uint32_t bits = draw(query, first_key / 8 + quarter) << (8 * quarter);
    bits |= __shfl_xor_sync(all_lanes, bits, 1);
    bits |= __shfl_xor_sync(all_lanes, bits, 2);
    return bits >> (2 * quarter);
  }

  /// Writes keep bits for accumulators whose rows are keys. `first_key` is the first key of the row tile.
  /// `first_query` is the first query of two neighbouring column tiles. Bit 16 * half + 8 * i of bits[n] is
  /// set if element 2 * half + i of tile n is kept.
  LOCKSTEP_DEVICE void of_two_tiles(int first_key, int first_query, uint32_t (&bits)[2]) const {
    // The eight lanes of one column make the eight calls for two columns of two tiles and 16 keys.
    const int lane = lane_index(), call = lane / 4;
    const int query = first_query + call / 4 * 8 + lane % 4 * 2 + call % 2;
    uint32_t own = draw(query, first_key / 8 + call / 2 % 2) << (8 * (call % 4));
    own |= __shfl_xor_sync(all_lanes, own, 4);
    own |= __shfl_xor_sync(all_lanes, own, 8);
    const uint32_t other = __shfl_xor_sync(all_lanes, own, 16);
    bits[0] = (lane < 16 ? own : other) >> call;
    bits[1] = (lane < 16 ? other : own) >> call;
  }

 private:
  uint64_t key_;
  uint32_t sample_, step_, threshold_;
};

}  // namespace lockstep::cuda::attention
