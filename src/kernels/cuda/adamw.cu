// SPDX-License-Identifier: Apache-2.0

// One launch updates all slices of a table, up to 400. The table is the kernel's parameter. A block takes a
// tile of 4096 elements of one slice. A thread takes 8 neighbours at a time by 16-byte accesses. It takes
// single elements if a slice is not aligned. An element with an fp32 master moves 28 bytes and its compute
// copy, so memory is the bound. Parameter and moments are read and written, and the gradient is read. Two
// divisions and a root take some 100 instructions, about half of what an H200 could issue in that time.

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/table.cuh"

namespace lockstep {
namespace {

using cuda::Pack;

constexpr int threads = 256;
constexpr int64_t tile = 4096;
constexpr int neighbours = 8;

struct Slice {
  float* parameter;
  const float* gradient;
  float* first;
  float* second;
  void* copy;
  int64_t size;
  double weight_decay;
  double learning_rate_factor;
  uint32_t first_tile;
  DType copy_dtype;
  bool packed;  // all arrays begin at multiples of 16 bytes
};

struct Step {
  static constexpr int capacity = 400;
  Slice slices[capacity];
  int count = 0;
  uint32_t tiles = 0;
  double schedule[3];
  const double* device_schedule;
  const float* clip;
  float gradient_scale, one_minus_beta1, beta2, one_minus_beta2, epsilon;
};
static_assert(sizeof(Step) <= cuda::parameter_bytes);

/// The factors of an update, as on the CPU: computed in double and rounded once.
struct Factors {
  float gradient_scale, decay, one_minus_beta1, beta2, one_minus_beta2, root_of_correction2, epsilon,
      step_size;
};

LOCKSTEP_DEVICE Factors make_factors(const Step& k, const Slice& slice, float scale) {
  const double* schedule = k.device_schedule ? k.device_schedule : k.schedule;
  return {.gradient_scale = scale,
          .decay = static_cast<float>(1.0 - schedule[0] * slice.learning_rate_factor * slice.weight_decay),
          .one_minus_beta1 = k.one_minus_beta1,
          .beta2 = k.beta2,
          .one_minus_beta2 = k.one_minus_beta2,
          .root_of_correction2 = static_cast<float>(schedule[2]),
          .epsilon = k.epsilon,
          .step_size = static_cast<float>(schedule[1] * slice.learning_rate_factor)};
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
LOCKSTEP_DEVICE void store_parameter(const Slice& slice, int64_t i, const float (&values)[count]) {
  store<count, float>(slice.parameter, i, values);
  if (slice.copy == nullptr) return;
  if (slice.copy_dtype == DType::bf16)
    store<count, __nv_bfloat16>(slice.copy, i, values);
  else if (slice.copy_dtype == DType::f16)
    store<count, __half>(slice.copy, i, values);
  else
    store<count, float>(slice.copy, i, values);
}

/// Updates elements [i, i + count) of the slice with the CPU's operations in the CPU's order.
template <int count>
LOCKSTEP_DEVICE void update(const Slice& slice, const Factors& f, int64_t i) {
  float parameter[count], gradient[count], first[count], second[count];
  load<count, float>(slice.gradient, i, gradient);
  load<count, float>(slice.first, i, first);
  load<count, float>(slice.second, i, second);
  load<count, float>(slice.parameter, i, parameter);
#pragma unroll
  for (int j = 0; j < count; ++j) {
    const float scaled = gradient[j] * f.gradient_scale;
    first[j] = fmaf(f.one_minus_beta1, scaled - first[j], first[j]);
    second[j] = fmaf(f.one_minus_beta2 * scaled, scaled, f.beta2 * second[j]);
    parameter[j] = fmaf(-f.step_size, first[j] / (sqrtf(second[j]) / f.root_of_correction2 + f.epsilon),
                        parameter[j] * f.decay);
  }
  store<count, float>(slice.first, i, first);
  store<count, float>(slice.second, i, second);
  store_parameter(slice, i, parameter);
}

__global__ __launch_bounds__(threads) void adamw_kernel(const __grid_constant__ Step k) {
  const float scale = k.clip ? k.gradient_scale * *k.clip : k.gradient_scale;
  if (!std::isfinite(scale)) return;
  const Slice& slice = k.slices[cuda::entry_of_tile(k.slices, k.count, blockIdx.x)];
  const Factors factors = make_factors(k, slice, scale);
  const int64_t begin = (blockIdx.x - slice.first_tile) * tile;
  const int64_t end = begin + tile < slice.size ? begin + tile : slice.size;
  const int64_t packs_end = slice.packed ? end - (end - begin) % neighbours : begin;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t i = begin + thread * neighbours; i < packs_end; i += threads * neighbours)
    update<neighbours>(slice, factors, i);
  for (int64_t i = packs_end + thread; i < end; i += threads) update<1>(slice, factors, i);
}

__global__ void __launch_bounds__(1)
    schedule_kernel(const int32_t* step, double* schedule, double beta1, double beta2) {
  schedule[1] = schedule[0] / (1.0 - math::power(beta1, *step));
  schedule[2] = sqrt(1.0 - math::power(beta2, *step));
}

/// Returns the step with everything but its slices.
Step make_step(const AdamWStep& k) {
  Step step;
  const std::array<double, 3> schedule = adamw_schedule(k.learning_rate, k.beta1, k.beta2, k.step);
  std::copy(schedule.begin(), schedule.end(), step.schedule);
  step.device_schedule = k.schedule.as<double>();
  step.clip = static_cast<const float*>(k.clip.data);
  step.gradient_scale = k.gradient_scale;
  step.one_minus_beta1 = static_cast<float>(1.0 - k.beta1);
  step.beta2 = static_cast<float>(k.beta2);
  step.one_minus_beta2 = static_cast<float>(1.0 - k.beta2);
  step.epsilon = static_cast<float>(k.epsilon);
  return step;
}

Slice make_slice(const AdamWSlice& slice, uint32_t first_tile) {
  expect(slice.parameter.dtype != DType::f64, "AdamW of f64 runs on the CPU only");
  const bool is_aligned = cuda::is_aligned(slice.parameter.data, slice.gradient.data, slice.first_moment.data,
                                           slice.second_moment.data, slice.compute_copy.data);
  return {.parameter = slice.parameter.as<float>(),
          .gradient = slice.gradient.as<float>(),
          .first = slice.first_moment.as<float>(),
          .second = slice.second_moment.as<float>(),
          .copy = slice.compute_copy.data,
          .size = slice.parameter.size(),
          .weight_decay = slice.weight_decay,
          .learning_rate_factor = slice.learning_rate_factor,
          .first_tile = first_tile,
          .copy_dtype = slice.compute_copy.dtype,
          .packed = is_aligned};
}

}  // namespace

void run(CudaStream stream, const AdamWSchedule& k) {
  cuda::launch_grid(stream, {.blocks = 1, .threads = 1}, schedule_kernel, k.step.as<int32_t>(),
                    k.schedule.as<double>(), k.beta1, k.beta2);
}

void run(CudaStream stream, const AdamWStep& k) {
  Step step = make_step(k);
  const auto launch_table = [&] {
    cuda::launch_grid(stream, {.blocks = step.tiles, .threads = threads}, adamw_kernel, step);
    step.count = 0;
    step.tiles = 0;
  };
  for (const AdamWSlice& slice : k.slices) {
    if (slice.parameter.size() == 0) continue;
    step.slices[step.count++] = make_slice(slice, step.tiles);
    step.tiles += cuda::blocks_for(slice.parameter.size(), tile);
    if (step.count == Step::capacity) launch_table();
  }
  launch_table();
}

}  // namespace lockstep
