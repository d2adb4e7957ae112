// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "lockstep/kernels/cpu/flush_subnormals.h"
#include "lockstep/kernels/cpu/gemm.h"
#include "lockstep/kernels/cpu/gemm_bf16.h"
#include "lockstep/kernels/cpu/map.h"

namespace lockstep {

// Types that define how tiles of a product of S are multiplied, for code that has packed its factors.

/// Tiles that are multiplied by fused multiply-adds of vectors.
template <class S>
struct VectorTiles {
  using Packed = Compute<S>;
  static constexpr int64_t rows = gemm::tile_rows;
  static constexpr int64_t columns = gemm::tile_columns<Packed>;
  static constexpr int64_t depth_unit = 1;
  /// A panel of b and one of a of this depth fit into L1. Sums are also added up in blocks of this depth.
  static constexpr int64_t depth_at_once = gemm::depth_block;

  /// Whether rows of the left factor may be read in place.
  static constexpr bool reads_in_place = std::same_as<S, Packed>;

  struct Registers {};

  static void pack_rows(Packed* panels, gemm::Lanes<S> source, int64_t count, int64_t depth) {
    gemm::pack_rows(panels, source, count, depth);
  }
  static void pack_columns(Packed* panels, gemm::Lanes<S> source, int64_t count, int64_t depth) {
    gemm::pack_columns(panels, source, count, depth);
  }
  static void multiply(Packed* tile, const Packed* left, const Packed* right, int64_t row_count,
                       int64_t column_count, int64_t depth, gemm::Store store) {
    const FlushSubnormals<S> flush;
    gemm::multiply(tile, gemm::Left::panel, left, right, row_count, column_count, depth, store);
  }
  /// Returns the start of a panel of columns without its first `lanes` lanes, which are whole vectors.
  static const Packed* without(const Packed* panel, int64_t lanes) { return panel + lanes; }
  /// sums[lane] = the sum over d of left[d][lane] * right[d][lane], for two panels of columns.
  static void multiply_lanes(Packed* sums, const Packed* left, const Packed* right, int64_t depth) {
    const FlushSubnormals<S> flush;
    gemm::multiply_lanes(sums, left, right, depth);
  }
  static void multiply_in_place(Packed* tile, const Packed* left, int64_t left_stride, const Packed* right,
                                int64_t row_count, int64_t column_count, int64_t depth, gemm::Store store) {
    gemm::multiply_in_place(tile, left, left_stride, right, row_count, column_count, depth, store);
  }
};

/// Panels for the instructions that multiply bf16.
struct Bf16Tiles {
  using Packed = bfloat16;
  static constexpr int64_t rows = gemm::bf16::tile_rows;
  static constexpr int64_t columns = gemm::bf16::tile_columns;
  static constexpr int64_t depth_unit = gemm::bf16::depth_unit;
  static constexpr bool reads_in_place = false;

  static void pack_rows(Packed* panels, gemm::Lanes<bfloat16> source, int64_t count, int64_t depth) {
    gemm::bf16::pack_rows(panels, source, count, depth);
  }
  static void pack_columns(Packed* panels, gemm::Lanes<bfloat16> source, int64_t count, int64_t depth) {
    gemm::bf16::pack_columns(panels, source, count, depth);
  }
};

/// Tiles that are multiplied by AVX512-BF16.
struct WordTiles : Bf16Tiles {
  static constexpr int64_t depth_at_once = gemm::depth_block;

  struct Registers {};

  static void multiply(float* tile, const Packed* left, const Packed* right, int64_t row_count,
                       int64_t column_count, int64_t depth, gemm::Store store) {
    const FlushSubnormals<bfloat16> flush;
    gemm::bf16::multiply_words(tile, left, right, row_count, column_count, depth, store);
  }
  static const Packed* without(const Packed* panel, int64_t lanes) { return panel + lanes * depth_unit; }
  static void multiply_lanes(float* sums, const Packed* left, const Packed* right, int64_t depth) {
    gemm::bf16::multiply_lanes(sums, left, right, depth);
  }
};

/// Tiles that are multiplied by AMX.
struct UnitTiles : Bf16Tiles {
  static constexpr int64_t depth_at_once = 3 * gemm::depth_block;

  using Registers = gemm::bf16::Registers;

  static void multiply(float* tile, const Packed* left, const Packed* right, int64_t, int64_t, int64_t depth,
                       gemm::Store store) {
    gemm::bf16::multiply_tiles(tile, left, right, depth, store);
  }
};

/// The tiles whose sums have the bits of chains and that are fastest in this build.
template <class S>
using ChainTiles =
    std::conditional_t<std::same_as<S, bfloat16> && gemm::bf16::has_words, WordTiles, VectorTiles<S>>;

}  // namespace lockstep
