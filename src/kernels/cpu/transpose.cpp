// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/transpose.h"

#include "lockstep/kernels/cpu/map.h"

namespace lockstep {
namespace {

constexpr int64_t tile = 32;  // rows that are read together, so that both arrays stay in the cache

/// Transposes elements as values of `T`, which is any type of their size.
template <class T>
void transpose(const CpuStream& stream, const Transpose& k) {
  const int64_t rows = k.rows(), between = k.between(), columns = k.columns(), inner = k.inner();
  const auto* x = static_cast<const T*>(k.x.data);
  auto* y = static_cast<T*>(k.y.data);
  const int64_t tiles = (rows + tile - 1) / tile;
  const int64_t size = std::max<int64_t>(1, std::min(rows, tile) * columns * inner);
  stream.for_each_chunk(
      k.outer() * between * tiles, elementwise_grain / size, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i % tiles * tile, middle = i / tiles % between, outer = i / tiles / between;
          const int64_t last = std::min(row + tile, rows);
          const auto from = [&](int64_t r, int64_t c) {
            return x + (((outer * rows + r) * between + middle) * columns + c) * inner;
          };
          const auto to = [&](int64_t r, int64_t c) {
            return y + (((outer * columns + c) * between + middle) * rows + r) * inner;
          };
          if (inner == 1) {
            for (int64_t c = 0; c < columns; ++c)
              for (int64_t r = row; r < last; ++r) *to(r, c) = *from(r, c);
          } else {
            for (int64_t r = row; r < last; ++r)
              for (int64_t c = 0; c < columns; ++c) std::copy_n(from(r, c), inner, to(r, c));
          }
        }
      });
}

}  // namespace

void run(CpuStream stream, const Transpose& k) {
  switch (bytes(k.x.dtype)) {
    case 2:
      return transpose<uint16_t>(stream, k);
    case 4:
      return transpose<uint32_t>(stream, k);
    default:
      return transpose<uint64_t>(stream, k);
  }
}

}  // namespace lockstep
