// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/kernels/matmul.h"

namespace lockstep::cuda {

/// Everything that a product's plan depends on. Addresses, streams and the GPU's number are not part of it.
struct MatMulKey {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::f32;  ///< of a and b
  DType c_dtype = DType::f32;
  bool transpose_a = false, transpose_b = false;
  bool bias = false, pre_activation = false, residual = false, column_sum = false;
  Activation activation = Activation::none;

  static MatMulKey of(const MatMul& kernel);
  // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in a defaulted comparison
  auto operator<=>(const MatMulKey&) const = default;
};

/// Returns "m=768 n=768 ...", as in exported plans.
std::string to_text(const MatMulKey& key);

struct MatMulKeyHash {
  size_t operator()(const MatMulKey& key) const;
};

/// The work that cuBLASLt does on a product before it stores it. Lockstep's kernels do the rest.
enum class Epilogue : uint8_t { none, bias, gelu, gelu_bias, gelu_aux, gelu_aux_bias, dgelu, column_sum };
inline constexpr int epilogue_count = 8;
const char* name(Epilogue epilogue);

constexpr bool adds_bias(Epilogue e) {
  return e == Epilogue::bias || e == Epilogue::gelu_bias || e == Epilogue::gelu_aux_bias;
}
constexpr bool writes_pre_activation(Epilogue e) {
  return e == Epilogue::gelu_aux || e == Epilogue::gelu_aux_bias;
}
constexpr bool reads_pre_activation(Epilogue e) { return e == Epilogue::dgelu; }
constexpr bool applies_gelu(Epilogue e) {
  return writes_pre_activation(e) || reads_pre_activation(e) || e == Epilogue::gelu ||
         e == Epilogue::gelu_bias;
}

/// The epilogues that serve a product. The one that saves the most work is first, and the last is always
/// `none`.
struct EpilogueChoices {
  std::array<Epilogue, 3> of = {};
  int count = 0;
};
EpilogueChoices epilogues_for(const MatMulKey& key);
/// Returns those of epilogues_for() that are known to be fast on GPUs of a compute capability, given as 10 *
/// major + minor.
EpilogueChoices default_epilogues_for(const MatMulKey& key, int capability);

/// An algorithm as cuBLASLt itself stores it (its header: "can be trivially serialized").
struct Algorithm {
  std::array<uint64_t, 8> words = {};
  uint64_t workspace_bytes = 0;
  bool operator==(const Algorithm&) const = default;
};

struct MatMulPlan {
  Epilogue epilogue = Epilogue::none;
  Algorithm algorithm;
};
/// Returns "epilogue=none algorithm=66 ...", without the words that only cuBLASLt reads.
std::string describe(const MatMulPlan& plan);

/// Finds a plan in the process's table. The table is safe to use from several threads.
std::optional<MatMulPlan> find_plan(const MatMulKey& key);
/// Stores the plan if the key has none. Returns the stored plan.
MatMulPlan keep_plan(const MatMulKey& key, const MatMulPlan& plan);
void forget_plan(const MatMulKey& key);
/// Returns a counter that rises whenever plans are replaced. Threads that keep copies compare it.
uint64_t plans_generation();
bool is_matmul_tuning();

}  // namespace lockstep::cuda
