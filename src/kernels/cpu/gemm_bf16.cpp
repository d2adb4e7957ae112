// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemm_bf16.h"

#if defined(LOCKSTEP_BF16_UNIT)

#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 finds the registers that its own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <immintrin.h>
#include <utility>

namespace lockstep::gemm::bf16 {
namespace {

constexpr int64_t half = 16;                              // rows or columns of a register
constexpr int64_t register_elements = half * depth_unit;  // 1 KiB of bf16
constexpr int64_t unit_elements = 2 * register_elements;  // of a panel, for depth_unit

/// Pairs of depth: 16 words of two neighbours each. Words of `count` < 16 lanes are followed by zeros.
using Words = __m512i;

constexpr __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

/// Rows become columns.
void transpose(Words (&w)[16]) {
  Words a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; ++j) {
      a[i + j] = _mm512_shuffle_i32x4(b[i + j], b[i + j + 4], 0x88);
      a[i + j + 4] = _mm512_shuffle_i32x4(b[i + j], b[i + j + 4], 0xdd);
    }
  for (int j = 0; j < 8; ++j) {
    w[j] = _mm512_shuffle_i32x4(a[j], a[j + 8], 0x88);
    w[j + 8] = _mm512_shuffle_i32x4(a[j], a[j + 8], 0xdd);
  }
}

/// Of 16 lanes that are stretches of memory: lane i's 32 of depth from `d` on are word row i.
void read_stretches(Words (&w)[16], Lanes<bfloat16> source, int64_t count, int64_t d, int64_t depth) {
  const int64_t left = depth - d;
  const __mmask32 mask = left >= depth_unit ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
  for (int64_t lane = 0; lane < half; ++lane)
    w[lane] =
        lane < count ? _mm512_maskz_loadu_epi16(mask, source.from(lane).data + d) : _mm512_setzero_si512();
}

/// Of 16 lanes that lie beside each other: pair p of depth from `d` on is word row p.
void read_pairs(Words (&w)[16], Lanes<bfloat16> source, int64_t count, int64_t d, int64_t depth) {
  const __mmask16 mask = first(std::clamp<int64_t>(count, 0, half));
  const auto row = [&](int64_t at) {
    return at < depth
               ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, source.data + at * source.depth_stride))
               : _mm512_setzero_si512();
  };
  for (int64_t pair = 0; pair < half; ++pair)
    w[pair] = _mm512_or_si512(row(d + 2 * pair), _mm512_slli_epi32(row(d + 2 * pair + 1), 16));
}

void write(bfloat16* target, const Words (&w)[16]) {
  for (int64_t i = 0; i < half; ++i) _mm512_storeu_si512(target + i * depth_unit, w[i]);
}

/// Calls read for every half of every panel and every unit of depth, and writes what `read` leaves.
template <class Read>
void pack(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth, Read read) {
  for (int64_t lane = 0; lane < count; lane += 2 * half)
    for (int64_t d = 0; d < depth; d += depth_unit, panels += unit_elements)
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t begin = lane + part * half;
        Words words[16];
        read(words, source.from(begin), count - begin, d, depth);
        write(panels + part * register_elements, words);
      }
}

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

void pack_rows(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth) {
  if (source.depth_stride == 1) return pack(panels, source, count, depth, read_stretches);
  pack(panels, source, count, depth, [](Words(&w)[16], const auto&... from) {
    read_pairs(w, from...);
    transpose(w);
  });
}

void pack_columns(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth) {
  if (source.lane_stride == 1) return pack(panels, source, count, depth, read_pairs);
  pack(panels, source, count, depth, [](Words(&w)[16], const auto&... from) {
    read_stretches(w, from...);
    transpose(w);
  });
}

Registers::Registers() {
  static const Configuration all_of_full_size;
  _tile_loadconfig(&all_of_full_size);
}
Registers::~Registers() { _tile_release(); }

void multiply(float* tile, const bfloat16* left, const bfloat16* right, int64_t depth, Store store) {
  // gcc 12 does not know that the registers are loaded from what was written before.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  constexpr int64_t row_bytes = tile_columns * sizeof(float), lower = half * tile_columns;
  if (store == Store::add) {
    _tile_loadd(0, tile, row_bytes);
    _tile_loadd(1, tile + half, row_bytes);
    _tile_loadd(2, tile + lower, row_bytes);
    _tile_loadd(3, tile + lower + half, row_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t d = 0; d < depth; d += depth_unit, left += unit_elements, right += unit_elements) {
    _tile_loadd(4, left, 64);
    _tile_loadd(6, right, 64);
    _tile_loadd(5, left + register_elements, 64);
    _tile_loadd(7, right + register_elements, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, tile, row_bytes);
  _tile_stored(1, tile + half, row_bytes);
  _tile_stored(2, tile + lower, row_bytes);
  _tile_stored(3, tile + lower + half, row_bytes);
}

}  // namespace lockstep::gemm::bf16

#endif
