// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cublasLt.h>
#include <initializer_list>
#include <vector>

// The contents of cuBLASLt's opaque structures in the emulator, and one matmul.

namespace emulator::cublaslt {

/// The kind of a structure, stored in its first word.
enum class Kind : uint32_t { operation = 0x4c740001, layout, preference, algorithm };

struct Operation {
  Kind kind;
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a, transpose_b;
  uint32_t epilogue;
  void* vector;
  void* aux;
  int64_t aux_stride;
};

struct Layout {
  Kind kind;
  cudaDataType_t type;
  int64_t rows, columns, stride;
};

struct Preference {
  Kind kind;
  uint32_t reduction_schemes;
  uint64_t workspace_bytes;
  std::array<uint32_t, 4> alignments;
};

struct Algorithm {
  Kind kind;
  uint32_t id, tile, stages;
  int32_t split_k;
  uint32_t reduction, swizzle, option;
  uint16_t inner, cluster;
};

inline int64_t bytes_of(int32_t type) { return type == CUDA_R_32F ? 4 : 2; }
inline int64_t size_of(const Layout& matrix) {
  return matrix.stride * matrix.columns * bytes_of(matrix.type);
}

inline bool is_one_of(uint32_t epilogue, std::initializer_list<uint32_t> list) {
  return std::find(list.begin(), list.end(), epilogue) != list.end();
}
inline bool adds_bias(uint32_t e) {
  return is_one_of(e, {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
}
inline bool applies_gelu(uint32_t e) {
  return is_one_of(e, {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
                       CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
}
inline bool writes_aux(uint32_t e) {
  return is_one_of(e, {CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
}
inline bool reads_aux(uint32_t e) {
  return is_one_of(e, {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU_BGRAD});
}
inline bool writes_sum(uint32_t e) {
  return is_one_of(e, {CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB});
}

/// Columns of finished sums. Columns are `stride` elements apart.
struct Sums {
  int64_t stride;
  std::vector<float> values;
};

/// A checked matmul call with all its parameters by value, so that a graph can replay it.
struct Product {
  Operation operation;
  Layout a, b, c, d;
  Algorithm algorithm;
  const void *a_data, *b_data, *c_data;
  void *d_data, *workspace;
  float alpha, beta;

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.columns; }
  int64_t k() const { return operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
  int64_t workspace_bytes() const { return algorithm.split_k > 1 ? algorithm.split_k * m() * n() * 4 : 0; }

  double flops() const { return 2.0 * static_cast<double>(m()) * static_cast<double>(n() * k()); }
  /// Returns the bytes of each operand once, without the workspace.
  double bytes() const {
    const uint32_t e = operation.epilogue;
    const int64_t aux = writes_aux(e) || reads_aux(e) ? operation.aux_stride * d.columns : 0;
    const int64_t vector = adds_bias(e) || writes_sum(e) ? m() : 0;
    return static_cast<double>(size_of(a) + size_of(b) + size_of(d) + (beta != 0.0f ? size_of(c) : 0) +
                               (aux + vector) * bytes_of(d.type));
  }

  float left(int64_t row, int64_t inner) const;
  float right(int64_t inner, int64_t column) const;
  /// Computes the matmul. Throws Error if an array is not in device memory.
  void run() const;

 private:
  void check_memory() const;
  Sums multiply() const;
  void finish(const Sums& sums) const;
  void sum_operands() const;
};

}  // namespace emulator::cublaslt
