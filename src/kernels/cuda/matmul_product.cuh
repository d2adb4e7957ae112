// SPDX-License-Identifier: Apache-2.0
#pragma once

// cuBLASLt, for the files of this folder.

#include <cublasLt.h>
#include <map>
#include <vector>

#include "core/stream.h"
#include "kernels/cuda/matmul_plan.h"

namespace lockstep::cuda {

/// What every workspace has; algorithms that want more are not considered.
inline constexpr uint64_t matmul_workspace_bytes = uint64_t{32} << 20;

/// The addresses of one product; `vector` is the bias, or receives the sums of the epilogue.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* residual = nullptr;
  const void* vector = nullptr;
  const void* pre_activation = nullptr;
  void* c = nullptr;
  float scale = 1.0f;
};

/// The attributes of an algorithm in the order of `algorithm_attributes`.
struct AlgorithmAttribute {
  const char* name;
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  size_t bytes;
};
inline constexpr std::array<AlgorithmAttribute, 9> algorithm_attributes = {{
    {"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},
    {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {"split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {"option", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
}};
/// Nothing where cuBLASLt does not tell.
std::array<std::optional<int64_t>, algorithm_attributes.size()> attributes_of(const Algorithm& algorithm);

/// In which order an algorithm adds the parts of a split sum.
enum class Additions : uint8_t {
  fixed,    ///< it has none, or keeps them in fp32 in the workspace and adds them up by a step of its own
  unknown,  ///< cuBLASLt does not tell; it was asked for such orders alone
  varying,  ///< in the output, or rounded to 16 bits
};
Additions additions_of(const Algorithm& algorithm, DType c_dtype);

/// The bytes that operands of rows of so many bytes are aligned to, whatever their address: 16, or the
/// largest power of two that divides a row.
constexpr uint32_t row_alignment(int64_t row_bytes) {
  const auto lowest_bit = static_cast<uint64_t>(row_bytes) & (~static_cast<uint64_t>(row_bytes) + 1);
  return static_cast<uint32_t>(lowest_bit < 16 ? lowest_bit : 16);
}
inline constexpr uint32_t vector_alignment = 16;

/// The products of one key with one epilogue: what cuBLASLt is told about them, apart from addresses.
/// Row-major c = op(a) . op(b) is column-major c^T = op(b)^T . op(a)^T, so that cuBLASLt's A is our b.
class Product {
 public:
  Product(const MatMulKey& key, Epilogue epilogue);

  /// What cuBLASLt suggests, the best first, and how often a suggestion was dropped for a reason.
  struct Candidates {
    std::vector<Algorithm> kept;
    std::map<std::string, int> dropped;
  };
  /// Deterministic ones that can run; those that are not known to be, if there are no others. None where
  /// cuBLASLt cannot serve the epilogue.
  Candidates candidates(int device, int most) const;
  /// Why the algorithm cannot run; null if it can, with the workspace that cuBLASLt then asks for.
  const char* refuses(int device, Algorithm& algorithm) const;
  /// Enqueues the product. Returns cuBLASLt's word on it.
  cublasStatus_t run(const CudaStream& stream, const Algorithm& algorithm, const ProductOperands& operands);

 private:
  MatMulKey key_;
  Epilogue epilogue_;
  cublasLtMatmulDescOpaque_t operation_ = {};
  cublasLtMatrixLayoutOpaque_t a_ = {}, b_ = {}, c_ = {};
};

/// Throws Error with cuBLASLt's words unless the status is a success.
void check(cublasStatus_t status, const char* what, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

}  // namespace lockstep::cuda
