// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cuda/matmul_product.cuh"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/memory.h"

namespace lockstep::cuda {
namespace {

constexpr int most_gpus = 64;
constexpr int most_results = 64;

/// Returns cuBLASLt's handle for a GPU. It is made once and never destroyed, so no order of destruction
/// matters.
cublasLtHandle_t handle_of(int device) {
  static std::array<std::atomic<cublasLtHandle_t>, most_gpus> handles{};
  static std::mutex mutex;
  expect(device >= 0 && device < most_gpus, "GPU ", device,
         " has a number that is too large for matrix products");
  std::atomic<cublasLtHandle_t>& slot = handles[static_cast<size_t>(device)];
  if (const cublasLtHandle_t handle = slot.load(std::memory_order_acquire)) return handle;
  const std::lock_guard lock(mutex);
  if (slot.load() == nullptr) {
    int before = 0;
    check(cudaGetDevice(&before), "asking for the current GPU");
    check(cudaSetDevice(device), "choosing a GPU");
    // The library may allocate. This enqueues nothing, so it may happen while a graph is recorded.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    check(cudaThreadExchangeStreamCaptureMode(&mode), "allowing cuBLASLt to allocate");
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = cublasLtCreate(&handle);
    cudaThreadExchangeStreamCaptureMode(&mode);
    check(cudaSetDevice(before), "choosing a GPU");
    check(status, "starting cuBLASLt");
    slot.store(handle, std::memory_order_release);
  }
  return slot.load();
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f64:
    case DType::i32:
      break;
  }
  throw Error(concat("a product of ", dtype, " runs on the CPU only: f32, bf16 or f16 is needed on a GPU"));
}

cublasLtEpilogue_t native(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU;
    case Epilogue::gelu_bias:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Epilogue::gelu_aux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_aux_bias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::dgelu:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::column_sum:
      return CUBLASLT_EPILOGUE_BGRADA;  // cuBLASLt's A is our b
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)), "describing a product");
}

template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
        "describing a product");
}

cublasLtMatmulAlgo_t native(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t result;
  static_assert(sizeof(result.data) == sizeof(algorithm.words));
  std::memcpy(result.data, algorithm.words.data(), sizeof(result.data));
  return result;
}

/// Returns the reduction schemes that keep parts of sums in the workspace and add them in a separate step.
/// The parts have the type of sums, or the type of the output if that is the same.
constexpr uint32_t ordered_schemes(DType c_dtype) {
  return CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
         (c_dtype == DType::f32 ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0);
}

/// Returns an address that is a multiple of 16 bytes and of nothing larger. So suggestions do not depend on
/// the addresses of arrays.
const void* aligned_address() {
  alignas(256) static std::array<std::byte, 256> anything;
  return anything.data() + vector_alignment;
}

}  // namespace

void check(cublasStatus_t status, const char* what, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw Error(concat(what, " failed: cuBLASLt returned ", cublasLtGetStatusString(status)), file, line);
}

std::array<std::optional<int64_t>, algorithm_attributes.size()> attributes_of(const Algorithm& algorithm) {
  const cublasLtMatmulAlgo_t native_algorithm = native(algorithm);
  std::array<std::optional<int64_t>, algorithm_attributes.size()> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t word = 0;
    uint16_t half = 0;
    const auto& [name, attribute, bytes] = algorithm_attributes[i];
    size_t written = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
        &native_algorithm, attribute, bytes == 4 ? static_cast<void*>(&word) : &half, bytes, &written);
    if (status == CUBLAS_STATUS_SUCCESS) values[i] = bytes == 4 ? static_cast<int32_t>(word) : half;
  }
  return values;
}

Additions additions_of(const Algorithm& algorithm, DType c_dtype) {
  const auto attributes = attributes_of(algorithm);
  const std::optional<int64_t> splits = attributes[3], scheme = attributes[4];
  const bool is_whole = splits == 0 || splits == 1;
  if (!scheme) return is_whole ? Additions::fixed : Additions::unknown;
  if (scheme == CUBLASLT_REDUCTION_SCHEME_NONE)
    return is_whole || !splits ? Additions::fixed : Additions::varying;
  return (ordered_schemes(c_dtype) & *scheme) == *scheme ? Additions::fixed : Additions::varying;
}

Product::Product(const MatMulKey& key, Epilogue epilogue) : key_(key), epilogue_(epilogue) {
  check(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, native(epilogue));
  if (adds_bias(epilogue) || epilogue == Epilogue::column_sum)
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_address());
  if (writes_pre_activation(epilogue) || reads_pre_activation(epilogue)) {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned_address());
  }
  // A row-major matrix [rows, columns] is a column-major one of `columns` rows.
  const auto init = [](cublasLtMatrixLayoutOpaque_t& layout, DType dtype, int64_t rows, int64_t columns) {
    check(cublasLtMatrixLayoutInit(&layout, data_type(dtype), static_cast<uint64_t>(columns),
                                   static_cast<uint64_t>(rows), columns),
          "describing a matrix");
  };
  init(a_, key.dtype, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k);
  init(b_, key.dtype, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n);
  init(c_, key.c_dtype, key.m, key.n);
}

Product::Candidates Product::candidates(int device, int most) const {
  cublasLtMatmulPreferenceOpaque_t preference = {};
  check(cublasLtMatmulPreferenceInit(&preference), "describing a product");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, matmul_workspace_bytes);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, ordered_schemes(key_.c_dtype));
  const uint32_t a = row_alignment((key_.transpose_a ? key_.m : key_.k) * bytes(key_.dtype));
  const uint32_t b = row_alignment((key_.transpose_b ? key_.k : key_.n) * bytes(key_.dtype));
  const uint32_t c = row_alignment(key_.n * bytes(key_.c_dtype));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
  std::array<cublasLtMatmulHeuristicResult_t, most_results> results = {};
  int count = 0;
  auto operation = operation_;
  auto [layout_a, layout_b, layout_c] = std::tuple{a_, b_, c_};
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_of(device), &operation, &layout_b, &layout_a, &layout_c, &layout_c, &preference,
      std::min(most, most_results), results.data(), &count);
  Candidates found;
  if (status != CUBLAS_STATUS_SUCCESS) {
    ++found.dropped[concat("cuBLASLt returned ", cublasLtGetStatusString(status))];
    return found;
  }
  std::vector<Algorithm> unknown;
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    Algorithm algorithm;
    std::memcpy(algorithm.words.data(), result.algo.data, sizeof(result.algo.data));
    algorithm.workspace_bytes = result.workspaceSize;
    if (const char* problem = result.state == CUBLAS_STATUS_SUCCESS ? refuses(device, algorithm)
                                                                    : "cuBLASLt marks it as failing")
      ++found.dropped[problem];
    else
      (additions_of(algorithm, key_.c_dtype) == Additions::fixed ? found.kept : unknown).push_back(algorithm);
  }
  if (found.kept.empty())
    found.kept = std::move(unknown);
  else if (!unknown.empty())
    found.dropped["its order of additions is unknown"] += static_cast<int>(unknown.size());
  return found;
}

const char* Product::refuses(int device, Algorithm& algorithm) const {
  auto operation = operation_;
  auto [a, b, c] = std::tuple{a_, b_, c_};
  const cublasLtMatmulAlgo_t native_algorithm = native(algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_of(device), &operation, &b, &a, &c, &c, &native_algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return "cuBLASLt's check refuses it";
  algorithm.workspace_bytes = std::max<uint64_t>(algorithm.workspace_bytes, result.workspaceSize);
  if (algorithm.workspace_bytes > matmul_workspace_bytes) return "needs more workspace than is allowed";
  if (additions_of(algorithm, key_.c_dtype) == Additions::varying) return "its order of additions varies";
  return nullptr;
}

cublasStatus_t Product::run(const CudaStream& stream, const Algorithm& algorithm,
                            const ProductOperands& operands) {
  if (adds_bias(epilogue_) || epilogue_ == Epilogue::column_sum)
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  if (writes_pre_activation(epilogue_) || reads_pre_activation(epilogue_))
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.pre_activation);
  const MemoryScope scope("matmul workspace");
  // The size is always the same, so each stream and each graph ends up with a single workspace.
  const auto workspace =
      algorithm.workspace_bytes == 0 ? nullptr : allocate(int64_t{matmul_workspace_bytes}, stream);
  const float beta = operands.residual ? 1.0f : 0.0f;
  const void* c = operands.residual ? operands.residual : operands.c;
  const cublasLtMatmulAlgo_t native_algorithm = native(algorithm);
  return cublasLtMatmul(handle_of(stream.device), &operation_, &operands.scale, operands.b, &b_, operands.a,
                        &a_, &beta, c, &c_, operands.c, &c_, &native_algorithm, workspace.get(),
                        workspace ? matmul_workspace_bytes : 0, native(stream));
}

}  // namespace lockstep::cuda
