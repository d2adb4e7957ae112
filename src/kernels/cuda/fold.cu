// SPDX-License-Identifier: Apache-2.0

// A thread takes four neighbours and interprets the program. The program is a kernel's parameter and the same
// for all threads. The topmost value is in registers. The values below it are in the thread's own column of
// shared memory. The next input is loaded while the last is added. Bytes: each input is read once, 4 bytes
// per element, and 4 are written. Bound: memory. The few values that leave the registers cost shared memory
// at most a quarter of its rate.

#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/table.cuh"
#include "lockstep/kernels/fold.h"

namespace lockstep {
namespace {

constexpr int threads = 128;
constexpr int width = cuda::Pack<float>::size;
constexpr int max_depth = 24;

/// An input, and the number of additions that follow its push.
struct Push {
  uint16_t input;
  uint16_t additions;
};

template <int capacity>
struct Program {
  const float* inputs[capacity];
  Push pushes[capacity];
  int count = 0;
  float scale;
  bool aligned;
};
using SmallProgram = Program<64>;
using LargeProgram = Program<2048>;
static_assert(sizeof(LargeProgram) + sizeof(float*) + sizeof(int64_t) <= cuda::parameter_bytes);

using Four = cuda::Pack<float>;

/// Loads neighbours [i, i + 4) of an input. Elements beyond the end are zero.
LOCKSTEP_DEVICE Four load(const float* input, int64_t i, int64_t size, bool aligned) {
  if (aligned && i + width <= size) return cuda::load_pack_streaming(input + i);
  Four values;
#pragma unroll
  for (int j = 0; j < width; ++j) values.set(j, i + j < size ? input[i + j] : 0.0f);
  return values;
}

template <int capacity>
__global__ __launch_bounds__(threads) void fold_kernel(const __grid_constant__ Program<capacity> k, float* y,
                                                       int64_t size) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * width;
  if (i >= size) return;
  Four* below = cuda::dynamic_shared<Four>() + threadIdx.x;
  const auto load_input = [&](int push) { return load(k.inputs[k.pushes[push].input], i, size, k.aligned); };
  Four top = load_input(0);
  Four next = top;
  int depth = 0;  // values below the top
  for (int push = 0;;) {
    if (push + 1 < k.count) next = load_input(push + 1);
    for (int additions = k.pushes[push].additions; additions > 0; --additions) {
      const Four left = below[--depth * threads];
#pragma unroll
      for (int j = 0; j < width; ++j) top.set(j, left[j] + top[j]);
    }
    if (++push == k.count) break;
    below[depth++ * threads] = top;
    top = next;
  }
#pragma unroll
  for (int j = 0; j < width; ++j) top.set(j, top[j] * k.scale);
  if (k.aligned && i + width <= size) return cuda::store_pack_streaming(y + i, top);
#pragma unroll
  for (int j = 0; j < width; ++j)
    if (i + j < size) y[i + j] = top[j];
}

template <int capacity>
void launch_fold(const CudaStream& stream, const Fold& k) {
  Program<capacity> program;
  program.scale = k.scale;
  program.aligned = cuda::is_aligned(k.y.data);
  for (size_t input = 0; input < k.inputs.size(); ++input) {
    program.inputs[input] = k.inputs[input].as<float>();
    program.aligned = program.aligned && cuda::is_aligned(program.inputs[input]);
  }
  for (const int step : k.program) {
    if (step == Fold::add)
      ++program.pushes[program.count - 1].additions;
    else
      program.pushes[program.count++] = {static_cast<uint16_t>(step), 0};
  }
  const auto below = static_cast<size_t>(k.deepest() - 1);
  cuda::launch_grid(stream,
                    {.blocks = cuda::blocks_for(k.y.size(), threads * width),
                     .threads = threads,
                     .shared_bytes = below * threads * sizeof(Four)},
                    fold_kernel<capacity>, program, k.y.as<float>(), k.y.size());
}

}  // namespace

void run(CudaStream stream, const Fold& k) {
  const auto pushes = k.program.size() - static_cast<size_t>(std::ranges::count(k.program, Fold::add));
  const size_t needed = std::max(pushes, k.inputs.size());
  constexpr size_t small = sizeof(SmallProgram::pushes) / sizeof(Push);
  constexpr size_t large = sizeof(LargeProgram::pushes) / sizeof(Push);
  expect(needed <= large, "a fold of ", needed, " inputs: a GPU takes at most ", large, " at once");
  expect(k.deepest() <= max_depth, "a fold keeps ", k.deepest(), " values at once: a GPU keeps at most ",
         max_depth);
  if (needed <= small)
    launch_fold<small>(stream, k);
  else
    launch_fold<large>(stream, k);
}

}  // namespace lockstep
