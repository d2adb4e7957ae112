// SPDX-License-Identifier: Apache-2.0

// Multiples, ReLU, tanh, exponentials, logarithms, roots, fills and learned positions. All but the positions
// are maps (device/map.cuh) that move every array once: 3 for two operands, 2 for one, 1 for a fill. For
// positions, a thread adds 16 bytes of the table to the same place of `samples_per_thread` samples. It moves
// x and y once, and the table once for all these samples. In the backward, a thread adds up one group of
// columns over the batch in order. It moves dy once and the table's gradient once, with eight loads in
// flight. The driver makes copies. Bound: memory.

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/kernels/cuda/device/map.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/elementwise.h"

namespace lockstep {
namespace {

using cuda::blocks_for, cuda::Group, cuda::launch_grid, cuda::load_group, cuda::map, cuda::map_threads,
    cuda::map_views, cuda::narrow, cuda::store_group, cuda::widen;

struct Multiple {
  float factor;
  LOCKSTEP_DEVICE float operator()(float x) const { return factor * x; }
};
struct MultipleFromMemory {
  const float* factor;
  LOCKSTEP_DEVICE float operator()(float x) const { return __ldg(factor) * x; }
};
struct Relu {
  LOCKSTEP_DEVICE float operator()(float x) const { return x < 0.0f ? 0.0f : x; }
};
struct ReluGradient {
  LOCKSTEP_DEVICE float operator()(float x, float dy) const { return x > 0.0f ? dy : 0.0f; }
};
struct Tanh {
  LOCKSTEP_DEVICE float operator()(float x) const { return cuda::fast_tanh(x); }
};
struct TanhGradient {
  LOCKSTEP_DEVICE float operator()(float y, float dy) const { return dy * (1.0f - y * y); }
};
/// The library's functions, accurate to an ulp or two. Their cost is hidden behind memory.
struct Exponential {
  LOCKSTEP_DEVICE float operator()(float x) const { return math::exp(x); }
};
struct Logarithm {
  LOCKSTEP_DEVICE float operator()(float x) const { return math::log(x); }
};
/// nvcc rounds square roots and quotients as IEEE 754 does. Their cost is hidden behind memory.
struct Root {
  LOCKSTEP_DEVICE float operator()(float x) const { return sqrtf(x); }
};
struct InverseRoot {
  LOCKSTEP_DEVICE float operator()(float x) const { return 1.0f / sqrtf(x); }
};
template <class T>
struct Constant {
  T value;
  LOCKSTEP_DEVICE T operator()() const { return value; }
};

template <class T, class Word>
void fill(const CudaStream& stream, const View& y, T value) {
  static_assert(sizeof(T) == sizeof(Word));
  map(stream, y.size(), Constant<Word>{std::bit_cast<Word>(value)}, static_cast<Word*>(y.data));
}

struct Values {
  double at[SetValues::max_count];
};

__global__ void __launch_bounds__(1) set_values_kernel(double* y, int count, Values values) {
#pragma unroll
  for (int i = 0; i < SetValues::max_count; ++i)
    if (i < count) y[i] = values.at[i];
}

__global__ void __launch_bounds__(1) set_step_kernel(int32_t* y, int32_t value) { *y = value; }

constexpr int samples_per_thread = 4;

/// Adds positions to four samples per thread. Blocks go over all groups first, then over the next four
/// samples.
template <int width, class T>
__global__ void __launch_bounds__(map_threads)
    add_positions_kernel(int64_t batch, int64_t groups, unsigned blocks_per_sample, const T* x,
                         const T* table, T* y) {
  const int64_t group = int64_t{blockIdx.x % blocks_per_sample} * map_threads + threadIdx.x;
  const int64_t first = int64_t{blockIdx.x / blocks_per_sample} * samples_per_thread;
  if (group >= groups) return;
  const Group<T, width> position = load_group<width>(table + group * width);
  Group<T, width> values[samples_per_thread];
#pragma unroll
  for (int s = 0; s < samples_per_thread; ++s)
    if (first + s < batch) values[s] = load_group<width>(x + ((first + s) * groups + group) * width);
#pragma unroll
  for (int s = 0; s < samples_per_thread; ++s) {
    if (first + s >= batch) break;
#pragma unroll
    for (int i = 0; i < width; ++i)
      narrow(values[s].values[i], widen(values[s].values[i]) + widen(position.values[i]));
    store_group(y + ((first + s) * groups + group) * width, values[s]);
  }
}

constexpr int sum_threads = 128;

template <int width, class T>
__global__ void __launch_bounds__(sum_threads)
    add_positions_backward_kernel(int64_t batch, int64_t groups, int64_t table_groups, const T* dy,
                                  float* dtable) {
  const int64_t group = int64_t{blockIdx.x} * sum_threads + threadIdx.x;
  if (group >= table_groups) return;
  Group<float, width> sum = {};
  if (group < groups) {
#pragma unroll 8
    for (int64_t b = 0; b < batch; ++b) {
      const Group<T, width> term = load_group<width>(dy + (b * groups + group) * width);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.values[i] += widen(term.values[i]);
    }
  }
  store_group(dtable + group * width, sum);
}

template <int width, class T>
void add_positions(const CudaStream& stream, const AddPositions& k) {
  const int64_t groups = k.x.shape[1] * k.x.shape[2] / width;
  const unsigned blocks_per_sample = blocks_for(groups, map_threads);
  const unsigned fours = blocks_for(k.x.shape[0], samples_per_thread);
  launch_grid(stream, {.blocks = blocks_per_sample * fours, .threads = map_threads},
              add_positions_kernel<width, T>, k.x.shape[0], groups, blocks_per_sample,
              static_cast<const T*>(k.x.data), static_cast<const T*>(k.table.data),
              static_cast<T*>(k.y.data));
}

template <int width, class T>
void add_positions_backward(const CudaStream& stream, const AddPositionsBackward& k) {
  const int64_t table_groups = k.dtable.size() / width;
  launch_grid(stream, {.blocks = blocks_for(table_groups, sum_threads), .threads = sum_threads},
              add_positions_backward_kernel<width, T>, k.dy.shape[0], k.dy.shape[1] * k.dy.shape[2] / width,
              table_groups, static_cast<const T*>(k.dy.data), static_cast<float*>(k.dtable.data));
}

}  // namespace

void run(CudaStream stream, const Scale& k) {
  map_views(stream, k.y, Multiple{static_cast<float>(k.factor)}, k.x);
}
void run(CudaStream stream, const ScaleBy& k) {
  map_views(stream, k.y, MultipleFromMemory{static_cast<const float*>(k.factor.data)}, k.x);
}
void run(CudaStream stream, const ReluForward& k) { map_views(stream, k.y, Relu{}, k.x); }
void run(CudaStream stream, const ReluBackward& k) { map_views(stream, k.dx, ReluGradient{}, k.x, k.dy); }
void run(CudaStream stream, const TanhForward& k) { map_views(stream, k.y, Tanh{}, k.x); }
void run(CudaStream stream, const TanhBackward& k) { map_views(stream, k.dx, TanhGradient{}, k.y, k.dy); }
void run(CudaStream stream, const Exp& k) { map_views(stream, k.y, Exponential{}, k.x); }
void run(CudaStream stream, const Log& k) { map_views(stream, k.y, Logarithm{}, k.x); }
void run(CudaStream stream, const Sqrt& k) { map_views(stream, k.y, Root{}, k.x); }
void run(CudaStream stream, const Rsqrt& k) { map_views(stream, k.y, InverseRoot{}, k.x); }

void run(CudaStream stream, const Fill& k) {
  const auto single = static_cast<float>(k.value);
  switch (k.y.dtype) {
    case DType::f32:
      return fill<float, uint32_t>(stream, k.y, single);
    case DType::f64:
      return fill<double, uint64_t>(stream, k.y, k.value);
    case DType::bf16:
      return fill<bfloat16, uint16_t>(stream, k.y, bfloat16(single));
    case DType::f16:
      return fill<float16, uint16_t>(stream, k.y, float16(single));
    case DType::i32:
      return fill<int32_t, uint32_t>(stream, k.y, static_cast<int32_t>(k.value));
  }
}

void run(CudaStream stream, const Copy& k) {
  if (k.x.size() == 0) return;
  cuda::check(cudaMemcpyAsync(k.y.data, k.x.data, static_cast<size_t>(k.x.bytes()), cudaMemcpyDeviceToDevice,
                              cuda::native(stream)),
              "copying within a GPU");
}

void run(CudaStream stream, const SetValues& k) {
  Values values;
  std::copy(k.values.begin(), k.values.end(), values.at);
  launch_grid(stream, {.blocks = 1, .threads = 1}, set_values_kernel, static_cast<double*>(k.y.data), k.count,
              values);
}

void run(CudaStream stream, const SetStep& k) {
  launch_grid(stream, {.blocks = 1, .threads = 1}, set_step_kernel, static_cast<int32_t*>(k.y.data),
              static_cast<int32_t>(k.value));
}

void run(CudaStream stream, const AddPositions& k) {
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    constexpr int width = cuda::Pack<T>::size;
    const bool packs =
        k.x.shape[1] * k.x.shape[2] % width == 0 && cuda::is_aligned(k.x.data, k.table.data, k.y.data);
    packs ? add_positions<width, T>(stream, k) : add_positions<1, T>(stream, k);
  });
}

void run(CudaStream stream, const AddPositionsBackward& k) {
  cuda::with_device_type(k.dy.dtype, [&]<class T>() {
    constexpr int width = cuda::Pack<T>::size;
    const bool packs = k.dy.shape[1] * k.dy.shape[2] % width == 0 && k.dtable.size() % width == 0 &&
                       cuda::is_aligned(k.dy.data, k.dtable.data);
    packs ? add_positions_backward<width, T>(stream, k) : add_positions_backward<1, T>(stream, k);
  });
}

}  // namespace lockstep
