// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"
#include "emulator/block.h"

namespace emulator {
namespace {

void require_alignment(const char* operation, const void* address, Site site) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
    running_block->fail([&] {
      return lockstep::concat("misaligned: ", operation, " (", describe(site),
                              ") needs addresses that are multiples of 16,");
    });
}

void require_shared(const char* operation, const void* address, Site site) {
  if (!running_block->shared.is_near(address))
    running_block->fail([&] {
      return lockstep::concat("address: ", operation, " (", describe(site),
                              ") needs an address in shared memory,");
    });
}

constexpr Site no_site{"ptx.cuh", 0};

// ---- ldmatrix ----

struct Rows {
  uint16_t row[8];  ///< the row that this lane provides
  uint32_t* matrices;
  bool transposed;
};

Rows& rows_of(Warp& warp, int lane) { return *static_cast<Rows*>(warp.lanes[lane].operand); }

void distribute(Warp& warp, uint32_t) {
  for (int lane = 0; lane < warp_size; ++lane) {
    const Rows& own = rows_of(warp, lane);
    const int row = lane / 4, column = lane % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto element = [&](int i, int j) { return uint32_t{rows_of(warp, matrix * 8 + i).row[j]}; };
      own.matrices[matrix] = own.transposed ? element(column, row) | element(column + 1, row) << 16
                                            : element(row, column) | element(row, column + 1) << 16;
    }
  }
}

constexpr WarpOperation load_operations[2] = {{false, false, distribute}, {false, false, distribute}};

// ---- mma.sync ----

struct Fragments {
  float* c;
  const uint32_t* a;
  const uint32_t* b;
};

template <Half type>
float widen(uint32_t bits) {
  // clang 14 supports _Float16 only for processors that compute with it, so the library's types are used.
  std::conditional_t<type == Half::bf16, lockstep::bfloat16, lockstep::float16> value;
  value.bits = static_cast<uint16_t>(bits);
  return static_cast<float>(value);
}

/// Multiplies the matrices of a warp. The products are exact and are added one by one in fp32. A tensor core
/// adds groups of products with its own rounding. So results agree within the tolerance of a sum of 16, but
/// they are not bit-identical.
template <Half type>
void multiply(Warp& warp, uint32_t) {
  float a[16][16], b[16][8];
  const auto unpack = [](uint32_t pair, float* first, float* second) {
    *first = widen<type>(pair & 0xffff);
    *second = widen<type>(pair >> 16);
  };
  for (int lane = 0; lane < warp_size; ++lane) {
    const auto& own = *static_cast<Fragments*>(warp.lanes[lane].operand);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      float* at = &a[group + i % 2 * 8][pair + i / 2 * 8];
      unpack(own.a[i], at, at + 1);
    }
    for (int i = 0; i < 2; ++i) unpack(own.b[i], &b[pair + i * 8][group], &b[pair + i * 8 + 1][group]);
  }
  for (int row = 0; row < 16; ++row) {
    float sum[8];
    const auto at = [&](int column) -> float& {
      const auto& owner = *static_cast<Fragments*>(warp.lanes[row % 8 * 4 + column / 2].operand);
      return owner.c[row / 8 * 2 + column % 2];
    };
    for (int column = 0; column < 8; ++column) sum[column] = at(column);
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) sum[column] += a[row][k] * b[k][column];
    for (int column = 0; column < 8; ++column) at(column) = sum[column];
  }
}

constexpr WarpOperation multiply_bf16{false, false, multiply<Half::bf16>};
constexpr WarpOperation multiply_f16{false, false, multiply<Half::f16>};

}  // namespace

void load_matrices(uint32_t (&matrices)[4], const void* row, bool transposed, Site site) {
  Rows own{.row = {}, .matrices = matrices, .transposed = transposed};
  require_shared("ldmatrix", row, site);
  require_alignment("ldmatrix", row, site);
  touch(row, 16, Touch::read, __builtin_return_address(0));
  // Copies the row now, because later writes of other lanes are not ordered before this load.
  std::memcpy(own.row, row, 16);
  running_block->meet(load_operations[transposed ? 1 : 0], "ldmatrix", ~0u, &own, site);
}

void multiply_matrices(Half type, float* c, const uint32_t* a, const uint32_t* b, Site site) {
  Fragments own{c, a, b};
  running_block->meet(type == Half::bf16 ? multiply_bf16 : multiply_f16, "mma.sync", ~0u, &own, site);
}

// ---- cp.async ----

void copy_asynchronously(void* shared, const void* global, bool valid) {
  require_shared("cp.async", shared, no_site);
  require_alignment("cp.async", shared, no_site);
  if (valid) {
    require_alignment("cp.async", global, no_site);
    touch(global, 16, Touch::read, __builtin_return_address(0));
  }
  touch(shared, 16, Touch::async_begin, __builtin_return_address(0));
  std::memset(shared, 0xff, 16);
  running_block->running->copies.push_back({shared, global, valid});
}

void close_copy_group() {
  Thread& self = *running_block->running;
  self.copy_groups.push_back({self.copies.size()});
}

void wait_for_copy_groups(int pending) {
  Thread& self = *running_block->running;
  const auto groups = static_cast<int>(self.copy_groups.size());
  if (groups <= pending) return;
  const size_t end = self.copy_groups[static_cast<size_t>(groups - pending - 1)].end;
  for (size_t i = 0; i < end; ++i) {
    const AsyncCopy& copy = self.copies[i];
    if (copy.valid)
      std::memcpy(copy.to, copy.from, 16);
    else
      std::memset(copy.to, 0, 16);
    touch(copy.to, 16, Touch::async_end, __builtin_return_address(0));
  }
  self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<std::ptrdiff_t>(end));
  self.copy_groups.erase(self.copy_groups.begin(), self.copy_groups.begin() + (groups - pending));
  for (CopyGroup& group : self.copy_groups) group.end -= end;
}

void touch_atomically(void* address, size_t bytes) {
  touch(address, bytes, Touch::atomic, __builtin_return_address(0));
}

}  // namespace emulator
