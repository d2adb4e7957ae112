// SPDX-License-Identifier: Apache-2.0
#include "kernels/arithmetic.h"

#include "kernels/cpu/map.h"

namespace lockstep {
namespace {

/// Copies the operand's elements for elements [begin, end) of the result into `to`.
template <class T>
void gather(const BroadcastPlan& plan, const BroadcastPlan::Numbers& strides, const T* x, int64_t begin,
            int64_t end, T* to) {
  const int64_t inner = plan.extents[0];
  while (begin < end) {
    const int64_t column = begin % inner;
    const int64_t count = std::min(end - begin, inner - column);
    const T* from = x + plan.place(strides, begin);
    to = strides[0] == 0 ? std::fill_n(to, count, *from) : std::copy_n(from, count, to);
    begin += count;
  }
}

/// y = f(a, b). A repeated operand is written out one block at a time, so that one loop computes all cases.
template <class F, class K>
void compute(const CpuStream& stream, const K& k, F f) {
  const int64_t size = k.y.size();
  const bool a_is_whole = k.a.size() == size, b_is_whole = k.b.size() == size;
  with_float_type(k.y.dtype, [&]<class T>() {
    const T *a = k.a.template as<T>(), *b = k.b.template as<T>();
    T* y = k.y.template as<T>();
    if (a_is_whole && b_is_whole) return map(stream, size, y, f, a, b);
    const BroadcastPlan plan = plan_broadcast(k.a.shape, k.b.shape, k.y.shape);
    stream.for_each_chunk(size, elementwise_grain, [&](int64_t chunk_begin, int64_t chunk_end) {
      constexpr int64_t block_size = 512;
      T of_a[block_size], of_b[block_size];
      for (int64_t begin = chunk_begin; begin < chunk_end; begin += block_size) {
        const int64_t end = std::min(begin + block_size, chunk_end);
        if (!a_is_whole) gather(plan, plan.of_a, a, begin, end, of_a);
        if (!b_is_whole) gather(plan, plan.of_b, b, begin, end, of_b);
        map_range<Compute<T>>(0, end - begin, y + begin, f, a_is_whole ? a + begin : of_a,
                              b_is_whole ? b + begin : of_b);
      }
    });
  });
}

}  // namespace

void run(CpuStream stream, const Add& k) {
  compute(stream, k, [](auto a, auto b) { return a + b; });
}

void run(CpuStream stream, const Subtract& k) {
  compute(stream, k, [](auto a, auto b) { return a - b; });
}

void run(CpuStream stream, const Multiply& k) {
  compute(stream, k, [](auto a, auto b) { return a * b; });
}

void run(CpuStream stream, const Divide& k) {
  compute(stream, k, [](auto a, auto b) { return a / b; });
}

}  // namespace lockstep
