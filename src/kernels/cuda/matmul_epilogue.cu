// SPDX-License-Identifier: Apache-2.0

// Finishes a product [rows, columns] with work that cuBLASLt's epilogues cannot do. A thread takes the
// elements of 16 bytes, neighbours of one row, with their columns' bias. It takes one element if rows are no
// multiple of 16 bytes. Bytes: x once and y once, and x once more if it keeps its sum with the bias. The bias
// stays in L1. Bound: memory.

#include <limits>

#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/matmul_epilogue.h"

namespace lockstep::cuda {
namespace {

constexpr int threads = 256;

template <class C, class B>
struct Operands {
  uint32_t groups;
  uint32_t groups_per_row;
  C* x;
  const B* bias;
  C* y;
  Activation activation;
  bool keeps_x;
};

LOCKSTEP_DEVICE float activate(Activation activation, float x) {
  if (activation == Activation::gelu_tanh) return gelu<Gelu::tanh>(x);
  if (activation == Activation::gelu_erf) return gelu<Gelu::erf>(x);
  return x;
}

template <int width, class C, class B>
__global__ void __launch_bounds__(threads) finish_product_kernel(Operands<C, B> k) {
  const uint32_t group = blockIdx.x * threads + threadIdx.x;
  if (group >= k.groups) return;
  const int64_t first = int64_t{group} * width;
  Group<C, width> values = load_group<width>(k.x + first);
  if (k.bias) {
    const Group<B, width> bias = load_group<width>(k.bias + int64_t{group % k.groups_per_row} * width);
#pragma unroll
    for (int i = 0; i < width; ++i)
      values.values[i] = from_float<C>(to_float(values.values[i]) + to_float(bias.values[i]));
  }
  if (k.keeps_x) store_group(k.x + first, values);
#pragma unroll
  for (int i = 0; i < width; ++i)
    values.values[i] = from_float<C>(activate(k.activation, to_float(values.values[i])));
  store_group(k.y + first, values);
}

template <class C, class B>
void finish(const CudaStream& stream, const FinishProduct& k) {
  constexpr int pack = 16 / static_cast<int>(sizeof(C));
  const int64_t columns = k.x.shape[-1];
  const bool packed = columns % pack == 0 && is_aligned(k.x.data, k.bias.data, k.y.data);
  const int64_t groups = packed ? k.x.size() / pack : k.x.size();
  expect(groups <= std::numeric_limits<uint32_t>::max() - threads, "a product of ", k.x.shape,
         " is too large");
  const Operands<C, B> operands{.groups = static_cast<uint32_t>(groups),
                                .groups_per_row = static_cast<uint32_t>(packed ? columns / pack : columns),
                                .x = static_cast<C*>(k.x.data),
                                .bias = static_cast<const B*>(k.bias.data),
                                .y = static_cast<C*>(k.y.data),
                                .activation = k.activation,
                                .keeps_x = k.bias && k.x.data != k.y.data};
  launch_grid(stream, {.blocks = blocks_for(groups, threads), .threads = threads},
              packed ? finish_product_kernel<pack, C, B> : finish_product_kernel<1, C, B>, operands);
}

}  // namespace

void run(const CudaStream& stream, const FinishProduct& k) {
  with_device_type(k.x.dtype, [&]<class C>() {
    if (!k.bias || k.bias.dtype == k.x.dtype) return finish<C, C>(stream, k);
    if constexpr (std::is_same_v<C, float>)
      k.bias.dtype == DType::bf16 ? finish<C, __nv_bfloat16>(stream, k) : finish<C, __half>(stream, k);
  });
}

}  // namespace lockstep::cuda
