// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/matmul.h"

#include <algorithm>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/cpu/blocked_product.h"
#include "lockstep/kernels/cpu/thin_product.h"
#include "lockstep/kernels/cpu/tiles.h"
#include "lockstep/kernels/processor.h"

namespace lockstep {
namespace {

/// Most multiply-adds of a product in a batch that one thread computes alone: some tens of microseconds.
constexpr int64_t largest_small_product = int64_t{1} << 21;

/// Calls body(product) with the kind of product that suits the kernel's operands and result. An element has
/// the same bits in products of few and of many rows. So products of few rows use AMX too if products of many
/// rows do.
template <class S, class Y, class Body>
void with_way(const MatMul& kernel, Body&& body) {
  if constexpr (std::same_as<S, bfloat16> && gemm::bf16::has_tiles)
    if (uses_bf16_unit()) return body(BlockedProduct<UnitTiles, S, Y>(kernel));
  if (ThinProduct<S, Y>::suits(kernel))
    body(ThinProduct<S, Y>(kernel));
  else
    body(BlockedProduct<ChainTiles<S>, S, Y>(kernel));
}

template <class Body>
void with_product(const MatMul& kernel, Body&& body) {
  with_float_type(kernel.a.dtype, [&]<class S>() {
    if (kernel.c.dtype == kernel.a.dtype) return with_way<S, S>(kernel, body);
    if constexpr (!std::same_as<S, Compute<S>>) with_way<S, Compute<S>>(kernel, body);
  });
}

int64_t scratch_bytes_of(const CpuStream& stream, const MatMul& kernel) {
  int64_t size = 0;
  with_product(kernel, [&](const auto& product) { size = product.scratch_bytes(stream); });
  return size;
}

void run_in(const CpuStream& stream, const MatMul& kernel, std::byte* scratch) {
  with_product(kernel, [&](const auto& product) { product.run(stream, scratch); });
}

bool is_small(const BatchedMatMul& kernel) {
  return kernel.m() * kernel.n() * kernel.k() <= largest_small_product;
}

MatMul product_of(const BatchedMatMul& kernel, int64_t of_a, int64_t of_b, int64_t of_c) {
  return {.a = kernel.matrix(kernel.a, of_a),
          .b = kernel.matrix(kernel.b, of_b),
          .c = kernel.matrix(kernel.c, of_c),
          .transpose_a = kernel.transpose_a,
          .transpose_b = kernel.transpose_b};
}

/// Returns the bytes that each product of a batch needs, rounded up so that those of the next one are
/// aligned.
int64_t scratch_bytes_each(const CpuStream& stream, const BatchedMatMul& kernel) {
  return round_up(scratch_bytes_of(stream, product_of(kernel, 0, 0, 0)), 64);
}

}  // namespace

int64_t scratch_bytes(CpuStream stream, const MatMul& kernel) { return scratch_bytes_of(stream, kernel); }

void run(CpuStream stream, const MatMul& kernel) {
  const auto scratch = allocate_scratch(stream, kernel);
  run_in(stream, kernel, scratch.get());
}

int64_t scratch_bytes(CpuStream stream, const BatchedMatMul& kernel) {
  if (kernel.c.size() == 0) return 0;
  // A small product runs on one thread. A large one is divided among threads.
  if (!is_small(kernel)) return scratch_bytes_each(stream, kernel);
  detail::ThreadPool alone(1);
  return kernel.batch() * scratch_bytes_each(CpuStream{&alone}, kernel);
}

void run(CpuStream stream, const BatchedMatMul& kernel) {
  if (kernel.c.size() == 0) return;
  const BroadcastPlan<2> plan = kernel.plan();
  const auto product = [&](int64_t number) {
    return product_of(kernel, plan.place(0, number), plan.place(1, number), number);
  };
  const auto memory = allocate_scratch(stream, kernel);
  if (!is_small(kernel)) {
    for (int64_t number = 0; number < kernel.batch(); ++number) run_in(stream, product(number), memory.get());
    return;
  }
  detail::ThreadPool alone(1);
  const CpuStream by{&alone};
  const int64_t size = scratch_bytes_each(by, kernel);
  stream.for_each_chunk(kernel.batch(), 1, [&](int64_t number, int64_t) {
    run_in(by, product(number), memory.get() + number * size);
  });
}

void run(CpuStream stream, const ColumnSum& kernel) {
  with_float_type(kernel.x.dtype, [&]<class X>() {
    const int64_t columns = kernel.x.shape[-1];
    const int64_t rows = columns == 0 ? 0 : kernel.x.size() / columns;
    stream.for_each_chunk(columns, sum_columns, [&](int64_t begin, int64_t end) {
      sum_column_chunk(kernel.x.as<X>() + begin, kernel.y.as<Compute<X>>() + begin, rows, columns,
                       end - begin);
    });
  });
}

}  // namespace lockstep
