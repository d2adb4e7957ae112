// SPDX-License-Identifier: Apache-2.0

// The functions of cuBLASLt that the library calls. They refuse the same calls as the real cuBLASLt. The
// algorithms split k differently (cublaslt_product.cpp), so their results are not bit-identical.

#include "emulator/cublaslt.h"

#include <cstring>

#include "emulator/emulator.h"

namespace emulator::cublaslt {
namespace {

template <class T, class Opaque>
T* open(Opaque* opaque, Kind kind) {
  static_assert(sizeof(T) <= sizeof(Opaque) && std::is_trivially_copyable_v<T>);
  if (opaque == nullptr) return nullptr;
  auto* contents = reinterpret_cast<T*>(opaque->data);
  return contents->kind == kind ? contents : nullptr;
}
Operation* open(cublasLtMatmulDesc_t handle) { return open<Operation>(handle, Kind::operation); }
Layout* open(cublasLtMatrixLayout_t handle) { return open<Layout>(handle, Kind::layout); }
Preference* open(cublasLtMatmulPreference_t handle) { return open<Preference>(handle, Kind::preference); }
const Algorithm* open(const cublasLtMatmulAlgo_t* handle) {
  return open<Algorithm>(const_cast<cublasLtMatmulAlgo_t*>(handle), Kind::algorithm);
}

/// Copies an attribute. Fails if its size is wrong.
template <class T>
cublasStatus_t assign(T& to, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_known(int32_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F; }

/// Returns cuBLASLt's status for these descriptors. No address is needed.
cublasStatus_t judge(const Operation* operation, const std::array<const Layout*, 4>& layouts) {
  if (operation == nullptr || std::count(layouts.begin(), layouts.end(), nullptr) > 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto& [a, b, c, d] = layouts;
  for (const Layout* matrix : layouts)
    if (!is_known(matrix->type) || matrix->rows < 1 || matrix->columns < 1 || matrix->stride < matrix->rows)
      return CUBLAS_STATUS_INVALID_VALUE;
  const bool plain_a = operation->transpose_a == CUBLAS_OP_N, plain_b = operation->transpose_b == CUBLAS_OP_N;
  if ((plain_a ? a->rows : a->columns) != d->rows || (plain_b ? b->columns : b->rows) != d->columns ||
      (plain_a ? a->columns : a->rows) != (plain_b ? b->rows : b->columns) || c->rows != d->rows ||
      c->columns != d->columns || c->type != d->type)
    return CUBLAS_STATUS_INVALID_VALUE;
  const uint32_t e = operation->epilogue;
  if ((writes_aux(e) || reads_aux(e)) &&
      (operation->aux == nullptr || operation->aux_stride % 8 != 0 || operation->aux_stride < d->rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((adds_bias(e) || writes_sum(e)) && operation->vector == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (operation->compute != CUBLAS_COMPUTE_32F || operation->scale != CUDA_R_32F || a->type != b->type ||
      (d->type != a->type && d->type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((applies_gelu(e) || reads_aux(e)) && d->type != a->type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool sums_operands = is_one_of(e, {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB});
  if (sums_operands && !cublaslt_limits().has_sums) return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

uint64_t workspace_of(const Algorithm& algorithm, const Layout& d) {
  return algorithm.split_k > 1 ? static_cast<uint64_t>(algorithm.split_k * d.rows * d.columns * 4) : 0;
}

constexpr std::array<Algorithm, 5> algorithms = {{
    {Kind::algorithm, 3, 20, 5, 2, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0, 0, 0, 1},
    {Kind::algorithm, 1, 18, 4, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 0, 0, 0},
    {Kind::algorithm, 3, 20, 5, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 1, 0, 0, 1},
    {Kind::algorithm, 2, 24, 3, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 7, 2, 3},
    {Kind::algorithm, 3, 20, 5, 4, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0, 0, 0, 1},
}};

bool is_aligned(const void* address, size_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

/// Returns true if the addresses are invalid: null, misaligned or overlapping.
bool is_misplaced(const Product& p) {
  const auto elements = [](const void* address, const Layout& matrix) {
    return address != nullptr && is_aligned(address, static_cast<size_t>(bytes_of(matrix.type)));
  };
  if (!elements(p.a_data, p.a) || !elements(p.b_data, p.b) || !elements(p.d_data, p.d)) return true;
  if (p.beta != 0.0f && !elements(p.c_data, p.c)) return true;
  const uint32_t e = p.operation.epilogue;
  if ((adds_bias(e) || writes_sum(e)) && !is_aligned(p.operation.vector, 16)) return true;
  if ((writes_aux(e) || reads_aux(e)) && !is_aligned(p.operation.aux, 16)) return true;
  const auto* d = static_cast<const char*>(p.d_data);
  const auto overlaps = [&](const void* from, const Layout& matrix) {
    const auto* begin = static_cast<const char*>(from);
    return begin < d + size_of(p.d) && d < begin + size_of(matrix);
  };
  if (overlaps(p.a_data, p.a) || overlaps(p.b_data, p.b)) return true;
  return p.beta != 0.0f && p.c_data != p.d_data && overlaps(p.c_data, p.c);
}

}  // namespace
}  // namespace emulator::cublaslt

using namespace emulator::cublaslt;

emulator::CublasLtLimits& emulator::cublaslt_limits() {
  static CublasLtLimits limits;
  return limits;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int library = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&library);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "an error";
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t handle, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (handle == nullptr || size < sizeof(Operation)) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = {};
  const Operation operation{.kind = Kind::operation,
                            .compute = compute,
                            .scale = scale,
                            .transpose_a = CUBLAS_OP_N,
                            .transpose_b = CUBLAS_OP_N,
                            .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                            .vector = nullptr,
                            .aux = nullptr,
                            .aux_stride = 0};
  std::memcpy(handle->data, &operation, sizeof(operation));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  Operation* operation = open(handle);
  if (operation == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(operation->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(operation->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(operation->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(operation->vector, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(operation->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(operation->aux_stride, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t handle, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t stride) {
  if (handle == nullptr || size < sizeof(Layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = {};
  const Layout layout{.kind = Kind::layout,
                      .type = type,
                      .rows = static_cast<int64_t>(rows),
                      .columns = static_cast<int64_t>(columns),
                      .stride = stride};
  std::memcpy(handle->data, &layout, sizeof(layout));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t handle, size_t size) {
  if (handle == nullptr || size < sizeof(Preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = {};
  const Preference preference{.kind = Kind::preference,
                              .reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK,
                              .workspace_bytes = 0,
                              .alignments = {256, 256, 256, 256}};
  std::memcpy(handle->data, &preference, sizeof(preference));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference* preference = open(handle);
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(preference->reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(preference->alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(preference->alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(preference->alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(preference->alignments[3], value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t handle, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  const Preference* preference = open(handle);
  if (most < 1 || preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = judge(open(operation), {open(a), open(b), open(c), open(d)});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::array<Layout*, 4> layouts = {open(a), open(b), open(c), open(d)};
  for (const Algorithm& algorithm : algorithms) {
    const uint64_t workspace = workspace_of(algorithm, *open(d));
    const bool is_allowed =
        algorithm.reduction == 0 || (algorithm.reduction & preference->reduction_schemes) != 0;
    // Algorithm 1 supports any alignment. The others need an alignment of 16 bytes.
    bool is_aligned = true;
    for (size_t i = 0; i < layouts.size(); ++i)
      is_aligned = is_aligned && preference->alignments[i] >= 16 &&
                   layouts[i]->stride * bytes_of(layouts[i]->type) % 16 == 0;
    if (!is_allowed || workspace > preference->workspace_bytes || (algorithm.id != 1 && !is_aligned))
      continue;
    if (*count == most) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    std::memcpy(result.algo.data, &algorithm, sizeof(algorithm));
    result.workspaceSize = workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1.0f;
  }
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Algorithm* algorithm = open(algo);
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = judge(open(operation), {open(a), open(b), open(c), open(d)});
  result->state = status;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (emulator::cublaslt_limits().refused.contains(algorithm->id)) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = workspace_of(*algorithm, *open(d));
  if (result->workspaceSize > 0) result->workspaceSize += emulator::cublaslt_limits().more_workspace;
  return status;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  const Algorithm* algorithm = open(algo);
  if (algorithm == nullptr || value == nullptr || attribute == emulator::cublaslt_limits().unreadable)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto give = [&](const auto& from) {
    if (bytes != sizeof(from)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(value, &from, bytes);
    if (written) *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return give(algorithm->id);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return give(algorithm->tile);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return give(algorithm->stages);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return give(algorithm->split_k);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return give(algorithm->reduction);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
      return give(algorithm->swizzle);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return give(algorithm->option);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      return give(algorithm->inner);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return give(algorithm->cluster);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const Algorithm* algorithm = open(algo);
  if (algorithm == nullptr || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status =
      judge(open(operation), {open(a_layout), open(b_layout), open(c_layout), open(d_layout)});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Product product{.operation = *open(operation),
                  .a = *open(a_layout),
                  .b = *open(b_layout),
                  .c = *open(c_layout),
                  .d = *open(d_layout),
                  .algorithm = *algorithm,
                  .a_data = a,
                  .b_data = b,
                  .c_data = c,
                  .d_data = d,
                  .workspace = workspace,
                  .alpha = *static_cast<const float*>(alpha),
                  .beta = *static_cast<const float*>(beta)};
  const uint64_t wanted = workspace_of(*algorithm, product.d);
  if (wanted > workspace_bytes || (wanted > 0 && !is_aligned(workspace, 16)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (is_misplaced(product)) return CUBLAS_STATUS_INVALID_VALUE;
  const emulator::Listed what{
      .kind = emulator::Listed::Kind::product, .bytes = product.bytes(), .flops = product.flops()};
  return emulator::enqueue(
             stream, [product] { product.run(); }, what) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
