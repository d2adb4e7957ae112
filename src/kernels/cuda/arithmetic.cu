// SPDX-License-Identifier: Apache-2.0

// Sums, differences, products and quotients. Operands of equal shape use map() (device/map.cuh). If an
// operand is repeated, a thread makes `groups_per_thread` groups of neighbours in the result. A group has 16
// bytes if rows of the innermost dimension consist of such groups, otherwise one element. Three 32-bit
// divisions give the position of a group in both operands. A value that is repeated along a group is read
// once. Bytes: the result once, and each operand once as far as the caches keep repeated values.
// Bound: memory.

#include "kernels/arithmetic.h"
#include "kernels/cuda/device/map.cuh"

namespace lockstep {
namespace {

using cuda::blocks_for, cuda::Group, cuda::groups_per_thread, cuda::map_threads;

enum class Operation { add, subtract, multiply, divide };

LOCKSTEP_DEVICE float apply(Operation operation, float a, float b) {
  if (operation == Operation::add) return a + b;
  if (operation == Operation::subtract) return a - b;
  if (operation == Operation::multiply) return a * b;
  return a / b;
}

template <Operation operation>
struct Function {
  LOCKSTEP_DEVICE float operator()(float a, float b) const { return apply(operation, a, b); }
};

/// A BroadcastPlan with 32-bit numbers.
struct Plan {
  uint32_t extents[Shape::max_rank];  ///< [0] counts groups, the others count elements
  uint32_t of_a[Shape::max_rank];
  uint32_t of_b[Shape::max_rank];
};

template <class T>
struct Problem {
  Operation operation;
  const T *a, *b;
  T* y;
  uint32_t groups = 0;
  Plan plan = {};
};

/// Loads a group of an operand: neighbours, or one value repeated.
template <int width, class T>
LOCKSTEP_DEVICE Group<T, width> load_operand(const T* from, bool is_repeated) {
  if (!is_repeated) return cuda::load_group<width>(from);
  const T value = *from;
  Group<T, width> group;
#pragma unroll
  for (int i = 0; i < width; ++i) group.values[i] = value;
  return group;
}

template <int width, class T>
__global__ void __launch_bounds__(map_threads) broadcast_kernel(Problem<T> k) {
#pragma unroll
  for (int g = 0; g < groups_per_thread; ++g) {
    const uint32_t index = (blockIdx.x * groups_per_thread + g) * map_threads + threadIdx.x;
    if (index >= k.groups) return;
    uint32_t rest = index, place_a = 0, place_b = 0;
#pragma unroll
    for (int i = 0; i < Shape::max_rank; ++i) {
      const bool is_last = i + 1 == Shape::max_rank;
      const uint32_t quotient = is_last ? 0 : rest / k.plan.extents[i];
      const uint32_t at = (rest - quotient * k.plan.extents[i]) * (i == 0 ? width : 1);
      place_a += at * k.plan.of_a[i];
      place_b += at * k.plan.of_b[i];
      rest = quotient;
    }
    const auto a = load_operand<width>(k.a + place_a, k.plan.of_a[0] == 0);
    const auto b = load_operand<width>(k.b + place_b, k.plan.of_b[0] == 0);
    Group<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i)
      cuda::narrow(result.values[i], apply(k.operation, cuda::widen(a.values[i]), cuda::widen(b.values[i])));
    cuda::store_group(k.y + int64_t{index} * width, result);
  }
}

template <int width, class T>
void launch_broadcast(const CudaStream& stream, Problem<T> problem, const BroadcastPlan& plan, int64_t size) {
  for (int i = 0; i < Shape::max_rank; ++i) {
    const auto at = static_cast<size_t>(i);
    problem.plan.extents[i] = static_cast<uint32_t>(plan.extents[at] / (i == 0 ? width : 1));
    problem.plan.of_a[i] = static_cast<uint32_t>(plan.of_a[at]);
    problem.plan.of_b[i] = static_cast<uint32_t>(plan.of_b[at]);
  }
  problem.groups = static_cast<uint32_t>(size / width);
  cuda::launch_grid(
      stream, {.blocks = blocks_for(problem.groups, map_threads * groups_per_thread), .threads = map_threads},
      broadcast_kernel<width, T>, problem);
}

template <Operation operation, class K>
void compute(const CudaStream& stream, const K& k) {
  const int64_t size = k.y.size();
  cuda::with_device_type(k.y.dtype, [&]<class T>() {
    const Problem<T> problem{.operation = operation,
                             .a = static_cast<const T*>(k.a.data),
                             .b = static_cast<const T*>(k.b.data),
                             .y = static_cast<T*>(k.y.data)};
    if (k.a.size() == size && k.b.size() == size)
      return cuda::map(stream, size, Function<operation>{}, problem.y, problem.a, problem.b);
    if (size == 0) return;
    expect(size <= int64_t{1} << 31, k.name, ": a is ", k.a.shape, ", b is ", k.b.shape, "; ", size,
           " elements are too many for a GPU to broadcast: at most 2^31");
    const BroadcastPlan plan = plan_broadcast(k.a.shape, k.b.shape, k.y.shape);
    constexpr int width = cuda::Pack<T>::size;
    const bool packs = plan.extents[0] % width == 0 && cuda::is_aligned(k.a.data, k.b.data, k.y.data);
    packs ? launch_broadcast<width>(stream, problem, plan, size)
          : launch_broadcast<1>(stream, problem, plan, size);
  });
}

}  // namespace

void run(CudaStream stream, const Add& k) { compute<Operation::add>(stream, k); }
void run(CudaStream stream, const Subtract& k) { compute<Operation::subtract>(stream, k); }
void run(CudaStream stream, const Multiply& k) { compute<Operation::multiply>(stream, k); }
void run(CudaStream stream, const Divide& k) { compute<Operation::divide>(stream, k); }

}  // namespace lockstep
