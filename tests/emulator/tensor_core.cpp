// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

#include "emulator/block.h"
#include "emulator/fused_sum.h"
#include "lockstep/core/dtype.h"
#include "lockstep/core/error.h"

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

/// The factors and the sums of a warp as numbers.
struct Matrices {
  float a[16][16], b[16][8], c[16][8];
  bool is_finite = true;

  void check(float x) { is_finite = is_finite && std::isfinite(x); }
};

/// Calls visit(index of the lane's register, row, column) for the four sums of a lane.
template <class Visit>
void for_each_sum(int lane, const Visit& visit) {
  for (int i = 0; i < 4; ++i) visit(i, lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
}

template <Half type>
Matrices gather(Warp& warp) {
  Matrices all;
  const auto unpack = [&](uint32_t pair, float& first, float& second) {
    first = widen<type>(pair & 0xffff);
    second = widen<type>(pair >> 16);
    all.check(first);
    all.check(second);
  };
  for (int lane = 0; lane < warp_size; ++lane) {
    const auto& own = *static_cast<Fragments*>(warp.lanes[lane].operand);
    const int group = lane / 4, pair = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
      float* at = &all.a[group + i % 2 * 8][pair + i / 2 * 8];
      unpack(own.a[i], at[0], at[1]);
    }
    for (int i = 0; i < 2; ++i) unpack(own.b[i], all.b[pair + i * 8][group], all.b[pair + i * 8 + 1][group]);
    for_each_sum(lane, [&](int i, int row, int column) {
      all.c[row][column] = own.c[i];
      all.check(own.c[i]);
    });
  }
  return all;
}

/// Returns the sum of a row and a column, which is exact only if it is infinite or NaN.
double plain_sum(const Matrices& all, int row, int column) {
  double sum = all.c[row][column];
  for (int k = 0; k < 16; ++k) sum += double{all.a[row][k]} * double{all.b[k][column]};
  return sum;
}

/// Adds the products to c as the tensor core does.
template <Half type>
void add_products(Matrices& all, const TensorCore& core) {
  constexpr int smallest = type == Half::bf16 ? -126 : -14;
  Term a[16][16], b[8][16];
  for (int k = 0; k < 16; ++k) {
    for (int row = 0; row < 16; ++row) a[row][k] = term_of(all.a[row][k], smallest);
    for (int column = 0; column < 8; ++column) b[column][k] = term_of(all.b[k][column], smallest);
  }
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float& sum = all.c[row][column];
      if (!all.is_finite) {
        const double plain = plain_sum(all, row, column);
        if (!std::isfinite(plain)) {
          sum = std::isnan(plain) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(plain);
          continue;
        }
      }
      for (int first = 0; first < 16 && std::isfinite(sum); first += core.terms) {
        Term terms[17] = {term_of(sum)};
        for (int k = 0; k < core.terms; ++k) terms[k + 1] = product(a[row][first + k], b[column][first + k]);
        sum = fused_sum(std::span(terms, static_cast<size_t>(core.terms) + 1), core.fraction_bits);
      }
    }
}

/// Multiplies the matrices of a warp with the bits of the emulated GPU's tensor cores.
template <Half type>
void multiply(Warp& warp, uint32_t) {
  const TensorCore core = tensor_core_of(model().major);
  Matrices all = gather<type>(warp);
  add_products<type>(all, core);
  for (int lane = 0; lane < warp_size; ++lane) {
    float* const sums = static_cast<Fragments*>(warp.lanes[lane].operand)->c;
    for_each_sum(lane, [&](int i, int row, int column) { sums[i] = all.c[row][column]; });
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
