// SPDX-License-Identifier: Apache-2.0
#pragma once

// The interface of cuBLASLt for the files of this folder.

#include <cublasLt.h>
#include <map>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/kernels/cuda/matmul_plan.h"

namespace lockstep::cuda {

/// The size of every workspace. Algorithms that need more are not considered.
inline constexpr uint64_t matmul_workspace_bytes = uint64_t{32} << 20;

/// The addresses of one product. `vector` is the bias, or receives the sums of the epilogue.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* residual = nullptr;
  const void* vector = nullptr;
  const void* pre_activation = nullptr;
  void* c = nullptr;
  float scale = 1.0f;
};

/// An attribute of an algorithm: its name, cuBLASLt's number for it, and its size.
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
/// Returns the attributes of an algorithm in the order of `algorithm_attributes`. An attribute is empty if
/// cuBLASLt does not report it.
std::array<std::optional<int64_t>, algorithm_attributes.size()> attributes_of(const Algorithm& algorithm);

/// The order in which an algorithm adds the parts of a split sum.
enum class Additions : uint8_t {
  fixed,    ///< no parts, or a separate step adds parts that are in fp32 in the workspace
  unknown,  ///< not reported by cuBLASLt, which was asked for fixed orders only
  varying,  ///< parts are added in the output, or rounded to 16 bits
};
Additions additions_of(const Algorithm& algorithm, DType c_dtype);

/// Returns the alignment of operands whose rows have `row_bytes` bytes, for every address that they may have.
/// It is 16, or the largest power of two that divides a row if that is less.
constexpr uint32_t row_alignment(int64_t row_bytes) {
  const auto lowest_bit = static_cast<uint64_t>(row_bytes) & (~static_cast<uint64_t>(row_bytes) + 1);
  return static_cast<uint32_t>(lowest_bit < 16 ? lowest_bit : 16);
}
inline constexpr uint32_t vector_alignment = 16;

/// The products of one key with one epilogue, described to cuBLASLt without addresses. Row-major c = op(a) .
/// op(b) is column-major c^T = op(b)^T . op(a)^T, so cuBLASLt's A is our b.
class Product {
 public:
  Product(const MatMulKey& key, Epilogue epilogue);

  /// cuBLASLt's suggestions, best first, and the number of suggestions dropped for each reason.
  struct Candidates {
    std::vector<Algorithm> kept;
    std::map<std::string, int> dropped;
  };
  /// Returns deterministic algorithms that can run. If there are none, returns those whose order of additions
  /// is unknown. The result is empty if cuBLASLt cannot serve the epilogue.
  Candidates candidates(int device, int most) const;
  /// Returns why the algorithm cannot run, or null if it can. Raises the algorithm's workspace if cuBLASLt's
  /// check asks for more.
  const char* refuses(int device, Algorithm& algorithm) const;
  /// Enqueues the product. Returns cuBLASLt's status.
  cublasStatus_t run(const CudaStream& stream, const Algorithm& algorithm, const ProductOperands& operands);

 private:
  MatMulKey key_;
  Epilogue epilogue_;
  cublasLtMatmulDescOpaque_t operation_ = {};
  cublasLtMatrixLayoutOpaque_t a_ = {}, b_ = {}, c_ = {};
};

/// Throws Error with cuBLASLt's text for the status, unless it is a success.
void check(cublasStatus_t status, const char* what, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

}  // namespace lockstep::cuda
