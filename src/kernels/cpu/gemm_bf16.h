// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/core/dtype.h"
#include "lockstep/kernels/cpu/gemm.h"
#include "lockstep/kernels/processor.h"

namespace lockstep::gemm::bf16 {

// Products of bf16 on processors that multiply bf16 and add in fp32, two neighbours of depth at once. A panel
// consists of words of two neighbours, the earlier one in the upper half.
//
// AVX512-BF16 (Intel since Cooper Lake, AMD since Zen 4) adds the product of the upper halves to a sum, then
// that of the lower ones. It rounds each time and counts subnormal numbers as zero. Apart from subnormal
// numbers this is the chain of fused multiply-adds of gemm.h, bit by bit. So products of bf16 by fp32 also
// count subnormal numbers as zero (FlushSubnormals).
//
// AMX-BF16 (Intel's Xeons since Sapphire Rapids) has eight registers of sixteen rows of 64 bytes, and adds to
// 16 x 16 sums at once. kernels/processor.h decides whether it may be used. An element's bits depend only on
// its row, its column and the depth here too. They are not the bits of a chain.

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
/// Panels round their depth up to a multiple of this, with zeros that change no sum.
inline constexpr int64_t depth_unit = 32;

/// Packs the first `count` lanes into panels of 32 rows, one after the other. For every 32 of depth the
/// layout is [row][depth / 2][2]. The rest of the last panel is zero.
void pack_rows(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth);

/// Packs the first `count` lanes into panels of 32 columns. For every 32 of depth the layout is [half][depth
/// / 2][column of 16][2].
void pack_columns(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth);

/// A scope in which this thread has AMX's registers.
class Registers {
 public:
  Registers();
  ~Registers();
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
};

/// tile[32][32] = (or +=) left . right by AMX, over `depth` rounded up to depth_unit. With += it continues
/// each sum of the tile.
void multiply_tiles(float* tile, const bfloat16* left, const bfloat16* right, int64_t depth, Store store);

/// tile[32][32] = (or +=) left . right by AVX512-BF16, for the first `rows` rows and `columns` columns. Both
/// counts are rounded up inside the tile. The bits are those of gemm::multiply() under FlushSubnormals.
void multiply_words(float* tile, const bfloat16* left, const bfloat16* right, int64_t rows, int64_t columns,
                    int64_t depth, Store store);

/// sums[lane] = the sum over d of left[d][lane] * right[d][lane] by AVX512-BF16, for two panels of columns.
/// The bits are those of gemm::multiply_lanes() under FlushSubnormals.
void multiply_lanes(float* sums, const bfloat16* left, const bfloat16* right, int64_t depth);

}  // namespace lockstep::gemm::bf16
