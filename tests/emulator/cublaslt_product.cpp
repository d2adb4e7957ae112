// SPDX-License-Identifier: Apache-2.0

// A reference matmul with cuBLASLt's layouts and epilogues. It adds over k in fp32 on the host.

#include <cmath>
#include <cstring>

#include "emulator/cublaslt.h"
#include "emulator/emulator.h"
#include "lockstep/core/dtype.h"

namespace emulator::cublaslt {
namespace {

using lockstep::bfloat16;
using lockstep::float16;

float load(const void* memory, int64_t i, int32_t type) {
  switch (type) {
    case CUDA_R_16BF:
      return static_cast<float>(static_cast<const bfloat16*>(memory)[i]);
    case CUDA_R_16F:
      return static_cast<float>(static_cast<const float16*>(memory)[i]);
    default:
      return static_cast<const float*>(memory)[i];
  }
}
void store(void* memory, int64_t i, int32_t type, float value) {
  switch (type) {
    case CUDA_R_16BF:
      static_cast<bfloat16*>(memory)[i] = bfloat16(value);
      return;
    case CUDA_R_16F:
      static_cast<float16*>(memory)[i] = float16(value);
      return;
    default:
      static_cast<float*>(memory)[i] = value;
  }
}

float rounded(float value, int32_t type) {
  return type == CUDA_R_16BF ? static_cast<float>(bfloat16(value)) : static_cast<float>(float16(value));
}

constexpr double root_2_over_pi = 0.79788456080286535588, cubic = 0.044715;

double gelu(double x) { return 0.5 * x * (1.0 + std::tanh(root_2_over_pi * (x + cubic * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(root_2_over_pi * (x + cubic * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root_2_over_pi * (1.0 + 3.0 * cubic * x * x);
}

void require_memory(const void* memory, int64_t bytes, const char* what) {
  lockstep::expect(is_device_memory(memory, static_cast<size_t>(bytes)),
                   "emulator: out of bounds: cublasLtMatmul and its ", what, " of ", bytes, " bytes");
}

}  // namespace

float Product::left(int64_t row, int64_t inner) const {
  const bool plain = operation.transpose_a == CUBLAS_OP_N;
  return load(a_data, plain ? inner * a.stride + row : row * a.stride + inner, a.type);
}

float Product::right(int64_t inner, int64_t column) const {
  const bool plain = operation.transpose_b == CUBLAS_OP_N;
  return load(b_data, plain ? column * b.stride + inner : inner * b.stride + column, b.type);
}

void Product::check_memory() const {
  require_memory(a_data, size_of(a), "A");
  require_memory(b_data, size_of(b), "B");
  require_memory(d_data, size_of(d), "D");
  if (beta != 0.0f) require_memory(c_data, size_of(c), "C");
  if (workspace_bytes() > 0) require_memory(workspace, workspace_bytes(), "workspace");
  const uint32_t e = operation.epilogue;
  if (adds_bias(e) || writes_sum(e))
    require_memory(operation.vector, (e == CUBLASLT_EPILOGUE_BGRADB ? n() : m()) * bytes_of(d.type),
                   "bias vector");
  if (writes_aux(e) || reads_aux(e))
    require_memory(operation.aux, operation.aux_stride * n() * bytes_of(d.type), "auxiliary matrix");
}

/// Returns op(A) . op(B) as [column][row], both padded. The algorithm splits k into parts. Each part is
/// summed separately, and the sums are added in order.
Sums Product::multiply() const {
  // A tile of sums fits into the registers.
  using Rows = float __attribute__((vector_size(64)));
  constexpr int64_t tile_rows = sizeof(Rows) / sizeof(float), tile_columns = 4;
  const auto padded = [](int64_t count, int64_t tile) { return (count + tile - 1) / tile * tile; };
  const int64_t inner = k(), rows = padded(m(), tile_rows), columns = padded(n(), tile_columns);
  std::vector<float> a_floats(static_cast<size_t>(inner * rows)),
      b_floats(static_cast<size_t>(inner * columns));
  for (int64_t step = 0; step < inner; ++step) {
    for (int64_t i = 0; i < m(); ++i) a_floats[static_cast<size_t>(step * rows + i)] = left(i, step);
    for (int64_t j = 0; j < n(); ++j) b_floats[static_cast<size_t>(step * columns + j)] = right(step, j);
  }
  const int64_t split = std::max(algorithm.split_k, 1);
  const int64_t part = algorithm.id == 2 ? 32 : (inner + split - 1) / split;
  Sums sums{.stride = rows, .values = std::vector<float>(static_cast<size_t>(rows * columns))};
  for (int64_t j = 0; j < columns; j += tile_columns)
    for (int64_t i = 0; i < rows; i += tile_rows)
      for (int64_t begin = 0; begin < inner; begin += part) {
        Rows partial[tile_columns] = {};
        for (int64_t step = begin; step < std::min(begin + part, inner); ++step) {
          Rows of_a;
          std::memcpy(&of_a, &a_floats[static_cast<size_t>(step * rows + i)], sizeof(of_a));
          const float* of_b = &b_floats[static_cast<size_t>(step * columns + j)];
          for (int64_t column = 0; column < tile_columns; ++column) partial[column] += of_a * of_b[column];
        }
        for (int64_t column = 0; column < tile_columns; ++column)
          for (int64_t row = 0; row < tile_rows; ++row)
            sums.values[static_cast<size_t>((j + column) * rows + i + row)] += partial[column][row];
      }
  return sums;
}

/// Applies the epilogue like cuBLASLt 13.0 on an H200. If C and D are the same 16-bit matrix, a sum is
/// rounded before and after C is added.
void Product::finish(const Sums& sums) const {
  const uint32_t e = operation.epilogue;
  const bool rounds_twice = beta != 0.0f && c_data == d_data && bytes_of(d.type) == 2;
  std::vector<float> of_rows(static_cast<size_t>(m()));
  for (int64_t j = 0; j < n(); ++j)
    for (int64_t i = 0; i < m(); ++i) {
      float value = alpha * sums.values[static_cast<size_t>(j * sums.stride + i)];
      if (rounds_twice) value = rounded(value, d.type);
      if (beta != 0.0f) value += beta * load(c_data, j * c.stride + i, c.type);
      if (adds_bias(e)) value += load(operation.vector, i, d.type);
      const int64_t at = j * operation.aux_stride + i;
      if (writes_aux(e)) store(operation.aux, at, d.type, value);
      if (applies_gelu(e)) value = static_cast<float>(gelu(value));
      if (reads_aux(e)) value *= static_cast<float>(gelu_slope(load(operation.aux, at, d.type)));
      store(d_data, j * d.stride + i, d.type, value);
      of_rows[static_cast<size_t>(i)] += value;
    }
  if (e != CUBLASLT_EPILOGUE_DGELU_BGRAD) return;
  for (int64_t i = 0; i < m(); ++i) store(operation.vector, i, d.type, of_rows[static_cast<size_t>(i)]);
}

void Product::sum_operands() const {
  const bool of_a = operation.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  for (int64_t i = 0; i < (of_a ? m() : n()); ++i) {
    float sum = 0.0f;
    for (int64_t step = 0; step < k(); ++step) sum += of_a ? left(i, step) : right(step, i);
    store(operation.vector, i, d.type, sum);
  }
}

void Product::run() const {
  check_memory();
  // The previous contents of the workspace are lost, as on a GPU.
  if (workspace_bytes() > 0) std::memset(workspace, 0xff, static_cast<size_t>(workspace_bytes()));
  finish(multiply());
  if (is_one_of(operation.epilogue, {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB})) sum_operands();
}

}  // namespace emulator::cublaslt
