// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/processor.h"
#include "kernels/cpu/gemm.h"

namespace lockstep::gemm::bf16 {

// Products of bf16 by instructions that multiply bf16 and add in fp32, two neighbours of depth at once, where
// the processor has them. In panels words of two neighbours follow each other, the earlier one in the upper
// half.
//
// AVX512-BF16 (Intel since Cooper Lake, AMD since Zen 4) adds the product of the upper halves to a sum, then
// that of the lower ones, rounding each time: the chain of fused multiply-adds of gemm.h, bit by bit, where
// subnormal numbers count as zero. Products of bf16 by fp32 therefore count them so, too (FlushSubnormals).
//
// AMX-BF16 (Intel's Xeons since Sapphire Rapids; core/processor.h says whether it may be used) has eight
// registers of sixteen rows of 64 bytes, and adds to 16 x 16 sums at once. An element's bits are a function
// of its row, its column and the depth as well, but not those of a chain.

#if defined(LOCKSTEP_BF16_UNIT)
inline constexpr bool has_tiles = true;
#else
inline constexpr bool has_tiles = false;
#endif
#if defined(LOCKSTEP_BF16_WORDS)
inline constexpr bool has_words = true;
#else
inline constexpr bool has_words = false;
#endif

inline constexpr int64_t tile_rows = 32;
inline constexpr int64_t tile_columns = 32;
/// What the depth of panels is rounded up to, with zeros that change no sum.
inline constexpr int64_t depth_unit = 32;

/// Panels of 32 rows, one behind the other, from the first `count` lanes: for every 32 of depth
/// [row][depth / 2][2]. What is left of the last is zero.
void pack_rows(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth);

/// Panels of 32 columns: for every 32 of depth [half][depth / 2][column of 16][2].
void pack_columns(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth);

/// Gives this thread AMX's registers while it lives.
class Registers {
 public:
  Registers();
  ~Registers();
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
};

/// tile[32][32] = (or +=) left . right over `depth`, rounded up to the unit, by AMX, going on with each sum.
void multiply_tiles(float* tile, const bfloat16* left, const bfloat16* right, int64_t depth, Store store);

/// The same by AVX512-BF16 for the first `rows` rows and `columns` columns, both rounded up inside the tile,
/// with the bits of gemm::multiply() under FlushSubnormals.
void multiply_words(float* tile, const bfloat16* left, const bfloat16* right, int64_t rows, int64_t columns,
                    int64_t depth, Store store);

/// sums[lane] = the sum over d of left[d][lane] * right[d][lane] by AVX512-BF16, of two panels of columns,
/// with the bits of gemm::multiply_lanes() under FlushSubnormals.
void multiply_lanes(float* sums, const bfloat16* left, const bfloat16* right, int64_t depth);

}  // namespace lockstep::gemm::bf16
