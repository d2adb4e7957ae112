// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cuda/matmul_tuning.cuh"

#include <algorithm>
#include <limits>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/gpu.h"
#include "lockstep/core/log.h"
#include "lockstep/core/stream.h"

namespace lockstep::cuda {
namespace {

constexpr int most_candidates = 32;
constexpr int timed_runs = 9;

/// A timer that records events around each of several runs on a stream.
class Timer {
 public:
  explicit Timer(const CudaStream& stream) : stream_(stream) {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "making an event");
  }
  ~Timer() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Returns the median time of a run in milliseconds, or infinity if it cannot run.
  float operator()(const std::function<bool()>& run) {
    if (!run()) return std::numeric_limits<float>::infinity();
    mark(0);
    for (size_t i = 0; i < timed_runs; ++i) {
      run();
      mark(i + 1);
    }
    synchronize(stream_);
    std::array<float, timed_runs> times{};
    for (size_t i = 0; i < timed_runs; ++i)
      check(cudaEventElapsedTime(&times[i], events_[i], events_[i + 1]), "timing a product");
    std::nth_element(times.begin(), times.begin() + timed_runs / 2, times.end());
    return times[timed_runs / 2];
  }

 private:
  void mark(size_t i) { check(cudaEventRecord(events_[i], native(stream_)), "recording an event"); }

  CudaStream stream_;
  std::array<cudaEvent_t, timed_runs + 1> events_{};
};

/// Returns whether cuBLASLt's suggestions are logged for each product.
bool logs_offers() {
  static const bool is_wanted = !environment("LOCKSTEP_LOG_MATMUL").empty();
  return is_wanted || is_matmul_tuning();
}

/// Returns the algorithms for a key and an epilogue. Logs them if logging is on, if a kernel replaces
/// column_sum, or if the order of additions is unknown.
std::vector<Algorithm> offers(int device, const MatMulKey& key, const Product& product, Epilogue epilogue) {
  const Product::Candidates found = product.candidates(device, most_candidates);
  std::string text = concat(to_text(key), ", epilogue ", name(epilogue), ": ", found.kept.size(), " kept");
  for (const auto& [reason, count] : found.dropped) text += concat(", ", count, " dropped: ", reason);
  if (found.kept.empty() && epilogue == Epilogue::column_sum)
    log_info(concat("cuBLASLt cannot sum these columns, so a kernel does: ", text));
  else if (!found.kept.empty() && additions_of(found.kept.front(), key.c_dtype) == Additions::unknown)
    log_warning(concat("cuBLASLt does not report the order of its additions: ", text));
  else if (logs_offers())
    log_info(text);
  return found.kept;
}

/// GPUs on which others measured that a fused epilogue of cuBLASLt is not slower than a kernel of its own.
/// The default plan is not timed, so it fuses on these alone. Tuning tries every epilogue on every GPU.
struct Fusion {
  int first_capability, last_capability;  ///< 10 * major + minor
};

/// Products with GELU are fused on Hopper, and on Blackwell of data centres: llm.c's pull requests 591 and
/// 653 measured a gain on an H100, and sglang's 34350 on an H100 and an H200. They are not fused elsewhere.
/// On an RTX 4090 (8.9) cuBLASLt ran a slow kernel after the product (llm.c 338, 591). On an RTX 5090 (12.0)
/// fusion was 25 % slower (sglang 34350).
constexpr Fusion gelu_fusion = {90, 109};

/// Sums of columns are fused from Hopper on. On A100s a backward took 6600 ms with them instead of 4042 ms
/// (issue 90 of NVIDIA's CUDALibrarySamples). On an H200 fused sums took 7 % more
/// time for 65536 x 768 x 3072, and 4 % less for 16384 x 384 x 1536 (bench/results/nvidia_h200.csv).
constexpr Fusion column_sum_fusion = {90, 129};

bool is_fused_by_default(Epilogue epilogue, int capability) {
  const auto is_within = [capability](const Fusion& fusion) {
    return capability >= fusion.first_capability && capability <= fusion.last_capability;
  };
  if (applies_gelu(epilogue)) return is_within(gelu_fusion);
  if (epilogue == Epilogue::column_sum) return is_within(column_sum_fusion);
  return true;  // adding a bias costs a product nothing
}

[[noreturn]] void throw_nothing_runs(const MatMulKey& key) {
  throw Error(concat("cuBLASLt has no algorithm for a product of ", key.dtype, " [", key.m, ", ", key.k,
                     "] and [", key.k, ", ", key.n, "]"));
}

}  // namespace

EpilogueChoices epilogues_for(const MatMulKey& key) {
  EpilogueChoices choices;
  const auto add = [&](Epilogue epilogue) { choices.of[static_cast<size_t>(choices.count++)] = epilogue; };
  // cuBLASLt's bias and sums have the dtype of its output. The rows of its auxiliary matrix are a multiple of
  // eight elements.
  const bool bias_fits = key.c_dtype == key.dtype, sums_fit = key.c_dtype == DType::f32;
  const bool aux_fits = key.n % 8 == 0;
  // cuBLASLt's GELU errs by 6e-6 in fp32 as well (seen on an H200). 16 bits hide this error, and f32 does
  // not.
  const bool gelu_fits = key.c_dtype != DType::f32;
  if (key.activation == Activation::gelu_tanh && gelu_fits && (bias_fits || !key.bias)) {
    if (!key.pre_activation)
      add(key.bias ? Epilogue::gelu_bias : Epilogue::gelu);
    else if (aux_fits)
      add(key.bias ? Epilogue::gelu_aux_bias : Epilogue::gelu_aux);
  }
  if (key.activation == Activation::gelu_tanh_backward && gelu_fits && aux_fits) add(Epilogue::dgelu);
  if (key.bias && bias_fits) add(Epilogue::bias);
  if (key.column_sum && sums_fit && !key.bias && key.activation == Activation::none)
    add(Epilogue::column_sum);
  add(Epilogue::none);
  return choices;
}

EpilogueChoices default_epilogues_for(const MatMulKey& key, int capability) {
  EpilogueChoices choices;
  const EpilogueChoices possible = epilogues_for(key);
  for (int i = 0; i < possible.count; ++i) {
    const Epilogue epilogue = possible.of[static_cast<size_t>(i)];
    if (is_fused_by_default(epilogue, capability))
      choices.of[static_cast<size_t>(choices.count++)] = epilogue;
  }
  return choices;
}

MatMulPlan first_plan(int device, const MatMulKey& key) {
  const GpuProperties gpu = gpu_properties(device);
  const EpilogueChoices choices = default_epilogues_for(key, 10 * gpu.major + gpu.minor);
  for (int i = 0; i < choices.count; ++i) {
    const Epilogue epilogue = choices.of[static_cast<size_t>(i)];
    const std::vector<Algorithm> algorithms = offers(device, key, Product(key, epilogue), epilogue);
    if (algorithms.empty()) continue;
    const MatMulPlan plan{.epilogue = epilogue, .algorithm = algorithms.front()};
    if (logs_offers()) log_info(concat("  takes the first: ", describe(plan)));
    return plan;
  }
  throw_nothing_runs(key);
}

MatMulPlan fastest_plan(const CudaStream& stream, const MatMulKey& key,
                        const std::function<bool(const Candidate&)>& attempt) {
  Timer timer(stream);
  MatMulPlan best;
  float best_time = std::numeric_limits<float>::infinity();
  const EpilogueChoices choices = epilogues_for(key);
  for (int i = 0; i < choices.count; ++i) {
    const Epilogue epilogue = choices.of[static_cast<size_t>(i)];
    Product product(key, epilogue);
    for (const Algorithm& algorithm : offers(stream.device, key, product, epilogue)) {
      const float time = timer([&] { return attempt({epilogue, &product, algorithm}); });
      if (time < best_time) {
        best_time = time;
        best = {.epilogue = epilogue, .algorithm = algorithm};
      }
    }
  }
  if (best_time == std::numeric_limits<float>::infinity()) throw_nothing_runs(key);
  log_info(concat("  takes the fastest, ", best_time, " ms: ", describe(best)));
  return best;
}

MatMulKey MatMulKey::of(const MatMul& kernel) {
  return {.m = kernel.m(),
          .n = kernel.n(),
          .k = kernel.k(),
          .dtype = kernel.a.dtype,
          .c_dtype = kernel.c.dtype,
          .transpose_a = kernel.transpose_a,
          .transpose_b = kernel.transpose_b,
          .bias = static_cast<bool>(kernel.bias),
          .pre_activation = static_cast<bool>(kernel.pre_activation),
          .residual = static_cast<bool>(kernel.residual),
          .column_sum = static_cast<bool>(kernel.column_sum),
          .activation = kernel.activation};
}

size_t MatMulKeyHash::operator()(const MatMulKey& key) const {
  uint64_t hash = 0;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32; };
  mix(static_cast<uint64_t>(key.m));
  mix(static_cast<uint64_t>(key.n));
  mix(static_cast<uint64_t>(key.k));
  uint64_t rest = static_cast<uint64_t>(key.activation);
  for (const uint64_t part : {static_cast<uint64_t>(key.dtype), static_cast<uint64_t>(key.c_dtype),
                              uint64_t{key.transpose_a}, uint64_t{key.transpose_b}, uint64_t{key.bias},
                              uint64_t{key.pre_activation}, uint64_t{key.residual}, uint64_t{key.column_sum}})
    rest = rest * 8 + part;
  mix(rest);
  return static_cast<size_t>(hash);
}

}  // namespace lockstep::cuda
