// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elementwise kernels whose operands are broadcast. Operands of the result's size use map() (map.cuh). If one
// is repeated, a thread makes `groups_per_thread` groups of neighbours in the result. A group has 16 bytes if
// rows of the innermost dimension consist of such groups, otherwise one element. Three 32-bit divisions give
// the position of a group in all operands. A value that is repeated along a group is read once, and a number
// is an argument of the launch. Bytes: the result once, and each operand once as far as the caches keep
// repeated values. Bound: memory.

#include <array>
#include <utility>

#include "lockstep/kernels/broadcast.h"
#include "lockstep/kernels/cuda/device/map.cuh"

namespace lockstep::cuda {

/// The type in which a kernel computes values of T: float, or i32 for i32.
template <class T>
using ElementOf = decltype(widen(T{}));

/// The operands of a broadcast and its plan with 32-bit numbers.
template <class T, int operands>
struct Broadcast {
  T* y;
  uint32_t groups = 0;
  uint32_t extents[Shape::max_rank] = {};  ///< [0] counts groups, the others count elements
  const T* at[operands] = {};              ///< null for a number
  ElementOf<T> numbers[operands] = {};
  uint32_t strides[operands][Shape::max_rank] = {};
};

/// Loads a group of an operand: neighbours, or one value repeated.
template <int width, class T>
LOCKSTEP_DEVICE void load_operand(ElementOf<T> (&values)[width], const T* from, ElementOf<T> number,
                                  bool is_repeated) {
  if (from && !is_repeated) {
    const Group<T, width> group = load_group<width>(from);
#pragma unroll
    for (int i = 0; i < width; ++i) values[i] = widen(group.values[i]);
    return;
  }
  const ElementOf<T> value = from ? widen(*from) : number;
#pragma unroll
  for (int i = 0; i < width; ++i) values[i] = value;
}

template <int width, int operands, class T, class F>
__global__ void __launch_bounds__(map_threads) broadcast_kernel(Broadcast<T, operands> k, F f) {
#pragma unroll
  for (int g = 0; g < groups_per_thread; ++g) {
    const uint32_t index = (blockIdx.x * groups_per_thread + g) * map_threads + threadIdx.x;
    if (index >= k.groups) return;
    uint32_t rest = index, places[operands] = {};
#pragma unroll
    for (int i = 0; i < Shape::max_rank; ++i) {
      const bool is_last = i + 1 == Shape::max_rank;
      const uint32_t quotient = is_last ? 0 : rest / k.extents[i];
      const uint32_t at = (rest - quotient * k.extents[i]) * (i == 0 ? width : 1);
#pragma unroll
      for (int o = 0; o < operands; ++o) places[o] += at * k.strides[o][i];
      rest = quotient;
    }
    ElementOf<T> values[operands][width];
#pragma unroll
    for (int o = 0; o < operands; ++o)
      load_operand<width>(values[o], k.at[o] ? k.at[o] + places[o] : nullptr, k.numbers[o],
                          k.strides[o][0] == 0);
    Group<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if constexpr (operands == 2)
        narrow(result.values[i], f(values[0][i], values[1][i]));
      else
        narrow(result.values[i], f(values[0][i], values[1][i], values[2][i]));
    }
    store_group(k.y + int64_t{index} * width, result);
  }
}

template <int width, class T, class F, size_t operands>
void launch_broadcast(const CudaStream& stream, const View& y, F f,
                      const std::array<OperandView, operands>& of, const BroadcastPlan<operands>& plan) {
  Broadcast<T, static_cast<int>(operands)> k{.y = static_cast<T*>(y.data)};
  for (size_t i = 0; i < Shape::max_rank; ++i) {
    k.extents[i] = static_cast<uint32_t>(plan.extents[i] / (i == 0 ? width : 1));
    for (size_t o = 0; o < operands; ++o) k.strides[o][i] = static_cast<uint32_t>(plan.strides[o][i]);
  }
  for (size_t o = 0; o < operands; ++o) {
    k.at[o] = static_cast<const T*>(of[o].data);
    k.numbers[o] = static_cast<ElementOf<T>>(of[o].number);
  }
  k.groups = static_cast<uint32_t>(y.size() / width);
  launch_grid(stream,
              {.blocks = blocks_for(k.groups, map_threads * groups_per_thread), .threads = map_threads},
              broadcast_kernel<width, static_cast<int>(operands), T, F>, k, f);
}

template <class T, class F, size_t... o>
void broadcast_operands(const CudaStream& stream, const char* name, const View& y, F f,
                        const std::array<OperandView, sizeof...(o)>& of, std::index_sequence<o...>) {
  if (y.size() == 0) return;
  expect(y.size() <= int64_t{1} << 31, name, ": ", y.size(),
         " elements are too many for a GPU to broadcast: at most 2^31");
  const auto plan = plan_broadcast<sizeof...(o)>({of[o].shape...}, y.shape);
  constexpr int width = Pack<T>::size;
  const bool packs = plan.extents[0] % width == 0 && is_aligned(y.data, of[o].data...);
  packs ? launch_broadcast<width, T>(stream, y, f, of, plan) : launch_broadcast<1, T>(stream, y, f, of, plan);
}

/// Returns whether every operand has the result's elements, so that none is repeated.
template <class... Operands>
bool are_whole(const View& y, const Operands&... operands) {
  return ((operands.size() == y.size() && !operands.is_number()) && ...);
}

/// Enqueues y = f(operands...) for operands of type T. `f` computes elements of whole operands, and
/// `repeated` those of others: often one function, whose operation is known when it runs. `name` is that of
/// the kernel's contract.
template <class T, class F, class Repeated, class... Operands>
void map_operands(const CudaStream& stream, const char* name, const View& y, F f, Repeated repeated,
                  const Operands&... operands) {
  if (are_whole(y, operands...))
    return map(stream, y.size(), f, static_cast<T*>(y.data), static_cast<const T*>(operands.data)...);
  broadcast_operands<T>(stream, name, y, repeated, std::array<OperandView, sizeof...(Operands)>{operands...},
                        std::index_sequence_for<Operands...>{});
}

/// Calls body.operator()<T>() as with_device_type() does, or with int32_t for i32.
template <class Body>
void with_any_device_type(DType dtype, Body&& body) {
  if (dtype == DType::i32) return body.template operator()<int32_t>();
  with_device_type(dtype, body);
}

}  // namespace lockstep::cuda
