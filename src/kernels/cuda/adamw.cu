// SPDX-License-Identifier: Apache-2.0

// One launch over all segments: their table is the kernel's parameter. A block takes a tile of 4096 elements
// of one segment; a thread takes 8 neighbours at a time, by 16-byte accesses, or single elements where a
// segment is not aligned. An element with an fp32 master moves 28 bytes (parameter and moments read and
// written, the gradient read) and its compute copy, so that memory is the bound; two divisions and a root are
// some 100 instructions, about half of what an H200 could issue in that time.

#include <algorithm>
#include <cmath>

#include "kernels/adamw.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/pack.cuh"
#include "kernels/cuda/device/table.cuh"

namespace lockstep {
namespace {

using cuda::Pack;

constexpr int threads = 256;
constexpr int64_t tile = 4096;
constexpr int neighbours = 8;  // they share one draw of random words

struct Segment {
  void* parameter;
  const float* gradient;
  float* first;
  float* second;
  void* copy;
  int64_t size;
  int64_t first_element;
  double weight_decay;
  uint64_t random_key;
  uint32_t first_tile;
  DType parameter_dtype;
  DType copy_dtype;
  bool packed;  // neighbours are aligned and make one group of random words
};

struct Step {
  static constexpr int capacity = 400;
  Segment segments[capacity];
  int count = 0;
  uint32_t tiles = 0;
  double schedule[3];
  const double* device_schedule;
  const float* clip;
  const uint32_t* device_step;
  uint32_t step;
  Rounding rounding;
  float gradient_scale, one_minus_beta1, beta2, one_minus_beta2, epsilon;
};
static_assert(sizeof(Step) <= cuda::parameter_bytes);

/// The CPU's factors, computed in double and rounded once.
struct Factors {
  float gradient_scale, decay, one_minus_beta1, beta2, one_minus_beta2, root_of_correction2, epsilon,
      step_size;
};

LOCKSTEP_DEVICE Factors make_factors(const Step& k, double weight_decay, float scale) {
  const double* schedule = k.device_schedule ? k.device_schedule : k.schedule;
  return {.gradient_scale = scale,
          .decay = static_cast<float>(1.0 - schedule[0] * weight_decay),
          .one_minus_beta1 = k.one_minus_beta1,
          .beta2 = k.beta2,
          .one_minus_beta2 = k.one_minus_beta2,
          .root_of_correction2 = static_cast<float>(schedule[2]),
          .epsilon = k.epsilon,
          .step_size = static_cast<float>(schedule[1])};
}

template <int count, class T>
LOCKSTEP_DEVICE void load(const void* from, int64_t i, float (&values)[count]) {
  const T* source = static_cast<const T*>(from) + i;
  if constexpr (count == 1) {
    values[0] = cuda::to_float(*source);
  } else {
#pragma unroll
    for (int start = 0; start < count; start += Pack<T>::size) {
      const Pack<T> pack = cuda::load_pack_streaming(source + start);
#pragma unroll
      for (int j = 0; j < Pack<T>::size; ++j) values[start + j] = pack[j];
    }
  }
}

template <int count, class T>
LOCKSTEP_DEVICE void store(void* to, int64_t i, const float (&values)[count]) {
  T* target = static_cast<T*>(to) + i;
  if constexpr (count == 1) {
    *target = cuda::from_float<T>(values[0]);
  } else {
#pragma unroll
    for (int start = 0; start < count; start += Pack<T>::size) {
      Pack<T> pack;
#pragma unroll
      for (int j = 0; j < Pack<T>::size; ++j) pack.set(j, values[start + j]);
      cuda::store_pack_streaming(target + start, pack);
    }
  }
}

template <int count>
LOCKSTEP_DEVICE void store_stochastically(const Segment& segment, uint32_t step, int64_t i,
                                          const float (&values)[count]) {
  const auto element = static_cast<uint64_t>(segment.first_element + i);
  const auto group = element / neighbours;
  const auto words = philox<7>(segment.random_key,
                               {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), 0, step});
  auto* target = static_cast<__nv_bfloat16*>(segment.parameter) + i;
  if constexpr (count == 1) {
    const uint32_t low = element & 2 ? words[1] : words[0];
    const uint32_t high = element & 2 ? words[3] : words[2];
    const uint32_t random = ((element & 4 ? high : low) >> (element & 1 ? 16 : 0)) & 0xffffu;
    *target = __ushort_as_bfloat16(round_stochastically(__float_as_uint(values[0]), random));
  } else {
    Pack<__nv_bfloat16> pack;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const uint32_t random = (words[j / 2] >> (16 * (j % 2))) & 0xffffu;
      pack.values[j] = __ushort_as_bfloat16(round_stochastically(__float_as_uint(values[j]), random));
    }
    cuda::store_pack_streaming(target, pack);
  }
}

template <int count>
LOCKSTEP_DEVICE void store_parameter(const Step& k, const Segment& segment, uint32_t step, int64_t i,
                                     const float (&values)[count]) {
  if (segment.parameter_dtype == DType::f32)
    store<count, float>(segment.parameter, i, values);
  else if (k.rounding == Rounding::stochastic)
    store_stochastically(segment, step, i, values);
  else
    store<count, __nv_bfloat16>(segment.parameter, i, values);
  if (segment.copy == nullptr) return;
  if (segment.copy_dtype == DType::bf16)
    store<count, __nv_bfloat16>(segment.copy, i, values);
  else if (segment.copy_dtype == DType::f16)
    store<count, __half>(segment.copy, i, values);
  else
    store<count, float>(segment.copy, i, values);
}

/// Elements [i, i + count) of the segment, each with the CPU's operations in the CPU's order.
template <int count>
LOCKSTEP_DEVICE void update(const Step& k, const Segment& segment, const Factors& f, uint32_t step,
                            int64_t i) {
  float parameter[count], gradient[count], first[count], second[count];
  load<count, float>(segment.gradient, i, gradient);
  load<count, float>(segment.first, i, first);
  load<count, float>(segment.second, i, second);
  if (segment.parameter_dtype == DType::f32)
    load<count, float>(segment.parameter, i, parameter);
  else
    load<count, __nv_bfloat16>(segment.parameter, i, parameter);
#pragma unroll
  for (int j = 0; j < count; ++j) {
    const float scaled = gradient[j] * f.gradient_scale;
    first[j] = fmaf(f.one_minus_beta1, scaled - first[j], first[j]);
    second[j] = fmaf(f.one_minus_beta2 * scaled, scaled, f.beta2 * second[j]);
    parameter[j] = fmaf(-f.step_size, first[j] / (sqrtf(second[j]) / f.root_of_correction2 + f.epsilon),
                        parameter[j] * f.decay);
  }
  store<count, float>(segment.first, i, first);
  store<count, float>(segment.second, i, second);
  store_parameter(k, segment, step, i, parameter);
}

__global__ __launch_bounds__(threads) void adamw_kernel(const __grid_constant__ Step k) {
  const float scale = k.clip ? k.gradient_scale * *k.clip : k.gradient_scale;
  if (!std::isfinite(scale)) return;
  const Segment& segment = k.segments[cuda::entry_of_tile(k.segments, k.count, blockIdx.x)];
  const Factors factors = make_factors(k, segment.weight_decay, scale);
  const uint32_t step = k.device_step ? *k.device_step : k.step;
  const int64_t begin = (blockIdx.x - segment.first_tile) * tile;
  const int64_t end = begin + tile < segment.size ? begin + tile : segment.size;
  const int64_t packs_end = segment.packed ? end - (end - begin) % neighbours : begin;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t i = begin + thread * neighbours; i < packs_end; i += threads * neighbours)
    update<neighbours>(k, segment, factors, step, i);
  for (int64_t i = packs_end + thread; i < end; i += threads) update<1>(k, segment, factors, step, i);
}

/// All but the segments.
Step make_step(const AdamWStep& k) {
  Step step;
  const std::array<double, 3> schedule = adamw_schedule(k.learning_rate, k.beta1, k.beta2, k.step);
  std::copy(schedule.begin(), schedule.end(), step.schedule);
  step.device_schedule = k.schedule.as<double>();
  step.clip = static_cast<const float*>(k.clip.data);
  step.device_step = k.device_step;
  step.step = static_cast<uint32_t>(k.step);
  step.rounding = k.rounding;
  step.gradient_scale = k.gradient_scale;
  step.one_minus_beta1 = static_cast<float>(1.0 - k.beta1);
  step.beta2 = static_cast<float>(k.beta2);
  step.one_minus_beta2 = static_cast<float>(1.0 - k.beta2);
  step.epsilon = static_cast<float>(k.epsilon);
  return step;
}

Segment make_segment(const AdamWStep& k, const AdamWSegment& segment, uint32_t first_tile) {
  expect(segment.parameter.dtype != DType::f64, "AdamW of f64 runs on the CPU only");
  const bool is_aligned =
      cuda::is_aligned(segment.parameter.data, segment.gradient.data, segment.first_moment.data,
                       segment.second_moment.data, segment.compute_copy.data);
  return {.parameter = segment.parameter.data,
          .gradient = segment.gradient.as<float>(),
          .first = segment.first_moment.as<float>(),
          .second = segment.second_moment.as<float>(),
          .copy = segment.compute_copy.data,
          .size = segment.parameter.size(),
          .first_element = segment.first_element,
          .weight_decay = segment.weight_decay,
          .random_key = derive_key(k.seed, segment.site, 0),
          .first_tile = first_tile,
          .parameter_dtype = segment.parameter.dtype,
          .copy_dtype = segment.compute_copy.dtype,
          .packed = is_aligned && segment.first_element % neighbours == 0};
}

}  // namespace

void run(CudaStream stream, const AdamWStep& k) {
  Step step = make_step(k);
  const auto launch_table = [&] {
    cuda::launch_grid(stream, {.blocks = step.tiles, .threads = threads}, adamw_kernel, step);
    step.count = 0;
    step.tiles = 0;
  };
  for (const AdamWSegment& segment : k.segments) {
    if (segment.parameter.size() == 0) continue;
    step.segments[step.count++] = make_segment(k, segment, step.tiles);
    step.tiles += cuda::blocks_for(segment.parameter.size(), tile);
    if (step.count == Step::capacity) launch_table();
  }
  launch_table();
}

}  // namespace lockstep
