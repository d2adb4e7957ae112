// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/peak_flops.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/core/clock.h"

namespace lockstep {
namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
using Vector = float __attribute__((vector_size(lanes * sizeof(float))));

// Twelve chains hide the latency of a fused multiply-add on every processor of the last ten years.
constexpr int chains = 12;

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("fp-contract=fast"), noinline))
#else
__attribute__((noinline))
#endif
float multiply_add(int64_t rounds, float start) {
#if defined(__clang__)
#pragma clang fp contract(fast)
#endif
  Vector sums[chains];
  for (int chain = 0; chain < chains; ++chain) sums[chain] = Vector{} + (start + static_cast<float>(chain));
  Vector factor = Vector{} + 0.999f;
  Vector term = Vector{} + 1e-3f;
  for (int64_t round = 0; round < rounds; ++round) {
    for (int chain = 0; chain < chains; ++chain) sums[chain] = sums[chain] * factor + term;
  }
  for (int chain = 1; chain < chains; ++chain) sums[0] += sums[chain];
  return sums[0][0];
}

}  // namespace

double measure_peak_flops() {
  constexpr int64_t rounds = 200'000;
  double best_seconds = 1e9;
  // Each call reads and writes a volatile value, so that the compiler cannot remove a call.
  volatile float value = multiply_add(rounds, 1.0f);
  for (int repeat = 0; repeat < 8; ++repeat) {
    const auto begin = Clock::now();
    value = multiply_add(rounds, value);
    best_seconds = std::min(best_seconds, seconds_since(begin));
  }
  return 2.0 * lanes * chains * static_cast<double>(rounds) / best_seconds;
}

double gpu_peak_flops(const std::string& gpu_name, DType dtype) {
  struct Peak {
    const char* name;
    double in_fp32;
    double in_16_bits;  ///< on tensor cores, without sparsity
  };
  // Figures are from the data sheets. The first entry whose name occurs in gpu_name applies.
  constexpr Peak peaks[] = {
      {"H100 PCIe", 51e12, 756e12}, {"H100", 67e12, 989.4e12},       {"H200", 67e12, 989.4e12},
      {"GH200", 67e12, 989.4e12},   {"A100", 19.5e12, 312e12},       {"B200", 80e12, 2250e12},
      {"L40S", 91.6e12, 362e12},    {"RTX 4090", 82.6e12, 165.2e12}, {"RTX 5090", 104.8e12, 209.5e12}};
  for (const Peak& peak : peaks)
    if (gpu_name.find(peak.name) != std::string::npos)
      return dtype == DType::f32 ? peak.in_fp32 : peak.in_16_bits;
  return 0.0;
}

}  // namespace lockstep
