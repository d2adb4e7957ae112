// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cpu/gemm_bf16.h"

#if defined(LOCKSTEP_BF16_UNIT) || defined(LOCKSTEP_BF16_WORDS)

#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 warns of registers that its own headers leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <immintrin.h>
#include <utility>

#include "lockstep/kernels/cpu/gemm_vector.h"

namespace lockstep::gemm::bf16 {
namespace {

constexpr int64_t half = 16;                              // rows or columns of a register
constexpr int64_t register_elements = half * depth_unit;  // 1 KiB of bf16
constexpr int64_t unit_elements = 2 * register_elements;  // elements of a panel per depth_unit

/// 16 words, each of two neighbours of depth.
using Words = __m512i;

/// The padding after the depth: +0 in columns and -0 in rows. Their product -0 is the one number that changes
/// no sum, not even -0.
enum class Behind : uint16_t { rows = 0x8000, columns = 0 };

constexpr __mmask16 first(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

/// Transposes 16 rows of words.
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

/// Reads 16 lanes that are contiguous in memory. Word row i receives the 32 elements of lane i from depth `d`
/// on.
void read_stretches(Words (&w)[16], Lanes<bfloat16> source, int64_t count, int64_t d, int64_t depth,
                    Behind behind) {
  const int64_t left = depth - d;
  const __mmask32 mask = left >= depth_unit ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
  const Words rest = _mm512_set1_epi16(static_cast<short>(behind));
  for (int64_t lane = 0; lane < half; ++lane)
    w[lane] = lane < count
                  ? _mm512_rol_epi32(_mm512_mask_loadu_epi16(rest, mask, source.from(lane).data + d), 16)
                  : _mm512_setzero_si512();
}

/// Reads 16 lanes that are neighbours in memory. Word row p receives pair p of depth from `d` on.
void read_pairs(Words (&w)[16], Lanes<bfloat16> source, int64_t count, int64_t d, int64_t depth,
                Behind behind) {
  const __mmask16 mask = first(std::clamp<int64_t>(count, 0, half));
  const Words rest = _mm512_set1_epi32(static_cast<int>(behind));
  const auto row = [&](int64_t at) {
    return at < depth
               ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, source.data + at * source.depth_stride))
               : rest;
  };
  for (int64_t pair = 0; pair < half; ++pair)
    w[pair] = _mm512_or_si512(_mm512_slli_epi32(row(d + 2 * pair), 16), row(d + 2 * pair + 1));
}

void write(bfloat16* target, const Words (&w)[16]) {
  for (int64_t i = 0; i < half; ++i) _mm512_storeu_si512(target + i * depth_unit, w[i]);
}

/// Calls `read` for every half of every panel and every unit of depth, and writes the words that it has read.
template <class Read>
void pack(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth, Behind behind, Read read) {
  for (int64_t lane = 0; lane < count; lane += 2 * half)
    for (int64_t d = 0; d < depth; d += depth_unit, panels += unit_elements)
      for (int64_t part = 0; part < 2; ++part) {
        const int64_t begin = lane + part * half;
        Words words[16];
        read(words, source.from(begin), count - begin, d, depth, behind);
        write(panels + part * register_elements, words);
      }
}

#if defined(LOCKSTEP_BF16_WORDS)
/// tile[rows][tile_columns] = (or +=) rows of a panel times 16 or 32 columns, over one block of depth.
template <size_t rows, size_t halves>
void multiply_block(float* tile, const bfloat16* left, const bfloat16* right, int64_t depth, bool add) {
  __m512 sums[rows][halves] = {};
  for (int64_t d = 0; d < depth; d += depth_unit, left += unit_elements, right += unit_elements)
    for (int64_t pair = 0; pair < half; ++pair) {
      __m512bh b[halves];
      unroll<halves>([&](auto h) {
        b[h] = reinterpret_cast<__m512bh>(load<Words>(right + h * register_elements + pair * depth_unit));
      });
      unroll<rows>([&](auto row) {
        const auto a =
            reinterpret_cast<__m512bh>(_mm512_set1_epi32(load<int32_t>(left + row * depth_unit + pair * 2)));
        unroll<halves>([&](auto h) { sums[row][h] = _mm512_dpbf16_ps(sums[row][h], a, b[h]); });
      });
    }
  unroll<rows * halves>([&](auto i) {
    float* target = tile + i / halves * tile_columns + i % halves * half;
    const __m512 sum = sums[i / halves][i % halves];
    store(target, add ? _mm512_add_ps(load<__m512>(target), sum) : sum);
  });
}

using Block = void (*)(float*, const bfloat16*, const bfloat16*, int64_t, bool);
constexpr Block blocks[3][2] = {{multiply_block<4, 1>, multiply_block<4, 2>},
                                {multiply_block<8, 1>, multiply_block<8, 2>},
                                {multiply_block<12, 1>, multiply_block<12, 2>}};
#endif

}  // namespace

void pack_rows(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth) {
  if (source.depth_stride == 1) return pack(panels, source, count, depth, Behind::rows, read_stretches);
  pack(panels, source, count, depth, Behind::rows, [](Words(&w)[16], const auto&... from) {
    read_pairs(w, from...);
    transpose(w);
  });
}

void pack_columns(bfloat16* panels, Lanes<bfloat16> source, int64_t count, int64_t depth) {
  if (source.lane_stride == 1) return pack(panels, source, count, depth, Behind::columns, read_pairs);
  pack(panels, source, count, depth, Behind::columns, [](Words(&w)[16], const auto&... from) {
    read_stretches(w, from...);
    transpose(w);
  });
}

#if defined(LOCKSTEP_BF16_UNIT)
namespace {

struct alignas(64) Configuration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

Registers::Registers() {
  static const Configuration all_of_full_size;
  _tile_loadconfig(&all_of_full_size);
}
Registers::~Registers() { _tile_release(); }

void multiply_tiles(float* tile, const bfloat16* left, const bfloat16* right, int64_t depth, Store store) {
  // gcc 12 does not know that the registers are loaded from memory that was written before.
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

#endif
#if defined(LOCKSTEP_BF16_WORDS)

void multiply_words(float* tile, const bfloat16* left, const bfloat16* right, int64_t rows, int64_t columns,
                    int64_t depth, Store store) {
  constexpr int64_t most_rows = 12;
  const int64_t halves = columns > half ? 1 : 0;
  bool add = store == Store::add;
  for (int64_t begin = 0; begin == 0 || begin < depth; begin += depth_block, add = true) {
    const int64_t length = std::min(depth - begin, depth_block);
    for (int64_t row = 0; row < rows; row += most_rows)
      blocks[(std::min(rows - row, most_rows) - 1) / 4][halves](tile + row * tile_columns,
                                                                left + begin * tile_rows + row * depth_unit,
                                                                right + begin * tile_columns, length, add);
  }
}

void multiply_lanes(float* sums, const bfloat16* left, const bfloat16* right, int64_t depth) {
  __m512 chains[2] = {};
  for (int64_t d = 0; d < depth; d += 2) {
    const int64_t at = d / depth_unit * unit_elements + d % depth_unit / 2 * depth_unit;
    // After an odd depth both panels are padded with +0.
    const Words rest = _mm512_set1_epi32(d + 1 < depth ? 0 : static_cast<int>(Behind::rows));
    unroll<2>([&](auto h) {
      const Words a = _mm512_or_si512(load<Words>(left + at + h * register_elements), rest);
      const Words b = load<Words>(right + at + h * register_elements);
      chains[h] = _mm512_dpbf16_ps(chains[h], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    });
  }
  unroll<2>([&](auto h) { store(sums + h * half, chains[h]); });
}

#endif

}  // namespace lockstep::gemm::bf16

#endif
