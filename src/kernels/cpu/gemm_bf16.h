// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/processor.h"
#include "kernels/cpu/gemm.h"

namespace lockstep::gemm::bf16 {

// Products of bf16 by the processor's unit for them (Intel's AMX-BF16; core/processor.h says whether it may
// be used). It has eight registers of sixteen rows of 64 bytes, and adds the products of two neighbours of
// depth to each of 16 x 16 sums in fp32 at once. An element's bits are a function of its row, its column and
// the depth, as elsewhere, but not those of a chain of fused multiply-adds, and subnormal numbers count as
// zero.

#if defined(LOCKSTEP_BF16_UNIT)
inline constexpr bool is_compiled = true;
#else
inline constexpr bool is_compiled = false;
#endif

inline constexpr int64_t tile_rows = 32;
inline constexpr int64_t tile_columns = 32;
/// What the depth of panels is rounded up to, with zeros.
inline constexpr int64_t depth_unit = 32;

/// Panels of 32 rows, one behind the other, from the first `count` lanes: for every 32 of depth
/// [row][depth]. What is left of the last is zero.
void pack_rows(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth);

/// Panels of 32 columns: for every 32 of depth [half][depth / 2][column of 16][2].
void pack_columns(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth);

/// Gives this thread the unit's registers while it lives.
class Registers {
 public:
  Registers();
  ~Registers();
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
};

/// tile[32][32] = (or +=) left . right over `depth`, rounded up to the unit, going on with each sum.
void multiply(float* tile, const bfloat16* left, const bfloat16* right, int64_t depth, Store store);

}  // namespace lockstep::gemm::bf16
