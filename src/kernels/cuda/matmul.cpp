// SPDX-License-Identifier: Apache-2.0

// Matrix products. cuBLASLt does what its epilogues can do, and Lockstep's kernels (matmul_epilogue.cu,
// matmul_sums.cu) do the rest. Operations: 2 m n k. Bound: the tensor cores for 16 bits and sizes from a few
// hundred on. docs/kernels/matmul.md has the mapping and the rules.

#include "lockstep/kernels/matmul.h"

#include <unordered_map>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/log.h"
#include "lockstep/core/memory.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/cuda/matmul_epilogue.h"
#include "lockstep/kernels/cuda/matmul_tuning.cuh"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/matmul_plans.h"

namespace lockstep {
namespace cuda {
namespace {

using Memory = std::shared_ptr<std::byte>;

bool is_aligned_to(const void* address, uint32_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

/// An operand with the alignment that a plan relies on, in place or in a copy. So the same algorithm serves
/// every address.
class AlignedInput {
 public:
  AlignedInput(const CudaStream& stream, const View& view, uint32_t alignment, bool in_place = true)
      : address_(view.data) {
    if (in_place && is_aligned_to(view.data, alignment)) return;
    copy_ = allocate(view.bytes(), stream);
    address_ = copy_.get();
    copy_bytes_in_background(copy_.get(), view.data, view.bytes(), stream);
  }
  const void* address() const { return address_; }

 private:
  const void* address_;
  Memory copy_;
};

class AlignedOutput {
 public:
  AlignedOutput(const CudaStream& stream, const View& view, uint32_t alignment) : view_(view) {
    if (!is_aligned_to(view.data, alignment)) copy_ = allocate(view.bytes(), stream);
  }
  void* address() const { return copy_ ? copy_.get() : view_.data; }
  void store(const CudaStream& stream) const {
    if (copy_) copy_bytes_in_background(view_.data, copy_.get(), view_.bytes(), stream);
  }

 private:
  View view_;
  Memory copy_;
};

uint32_t alignment_of(const View& matrix) { return row_alignment(matrix.shape[-1] * bytes(matrix.dtype)); }

/// Returns the tensor that cuBLASLt writes. If GELU's input is wanted and the epilogue does not write it,
/// this is pre_activation; otherwise it is c.
const View& destination(const MatMul& k, Epilogue epilogue) {
  const bool makes_pre_activation =
      k.pre_activation && !is_backward(k.activation) && !writes_pre_activation(epilogue);
  return makes_pre_activation ? k.pre_activation : k.c;
}

/// Enqueues cuBLASLt's part of a product.
cublasStatus_t multiply(const CudaStream& stream, const MatMul& k, const Candidate& candidate) {
  const auto& [epilogue, product, algorithm] = candidate;
  const AlignedInput a(stream, k.a, alignment_of(k.a));
  const AlignedInput b(stream, k.b, alignment_of(k.b));
  const View& to = destination(k, epilogue);
  const AlignedOutput c(stream, to, alignment_of(to));
  // cuBLASLt rounds a 16-bit sum twice if its C is its D: before it adds C, and after.
  const bool rounds_twice = k.residual && k.residual.data == c.address() && bytes(to.dtype) == 2;
  const AlignedInput residual(stream, k.residual, k.residual ? alignment_of(k.residual) : 1, !rounds_twice);
  const AlignedInput bias(stream, adds_bias(epilogue) ? k.bias : View{}, vector_alignment);
  const View wanted = epilogue == Epilogue::column_sum ? k.column_sum : View{};
  const AlignedOutput sum(stream, wanted, vector_alignment);
  const bool writes = writes_pre_activation(epilogue);
  const AlignedOutput written(stream, writes ? k.pre_activation : View{}, vector_alignment);
  const AlignedInput read(stream, reads_pre_activation(epilogue) ? k.pre_activation : View{},
                          vector_alignment);
  const cublasStatus_t status = product->run(stream, algorithm,
                                             {.a = a.address(),
                                              .b = b.address(),
                                              .residual = residual.address(),
                                              .vector = wanted ? sum.address() : bias.address(),
                                              .pre_activation = writes ? written.address() : read.address(),
                                              .c = c.address(),
                                              .scale = static_cast<float>(k.scale)});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  c.store(stream);
  if (wanted) sum.store(stream);
  if (writes) written.store(stream);
  return status;
}

/// Computes a product of no terms: zeros, or the residual.
void multiply_nothing(const CudaStream& stream, const MatMul& k) {
  const View& to = destination(k, Epilogue::none);
  if (!k.residual)
    check(cudaMemsetAsync(to.data, 0, static_cast<size_t>(to.bytes()), native(stream)), "filling with zeros");
  else if (k.residual.data != to.data)
    run(stream, Copy{.x = k.residual, .y = to});
}

/// Does the part of the contract that the product's epilogue did not do.
void finish(const CudaStream& stream, const MatMul& k, Epilogue done) {
  if (is_backward(k.activation)) {
    const Gelu form = k.activation == Activation::gelu_tanh_backward ? Gelu::tanh : Gelu::erf;
    if (!applies_gelu(done))
      run(stream, GeluBackward{.x = k.pre_activation, .dy = k.c, .dx = k.c, .form = form});
    return;
  }
  const View& x = destination(k, done);
  const bool adds = k.bias && !adds_bias(done);
  const bool applies = k.activation != Activation::none && !applies_gelu(done);
  if (adds || applies || x.data != k.c.data)
    run(stream, FinishProduct{.x = x,
                              .bias = adds ? k.bias : View{},
                              .y = k.c,
                              .activation = applies ? k.activation : Activation::none});
}

void sum(const CudaStream& stream, const MatMul& k, Epilogue done) {
  if (k.column_sum && done != Epilogue::column_sum) run(stream, ColumnSum{.x = k.b, .y = k.column_sum});
}

MatMulPlan make_plan(const CudaStream& stream, const MatMul& k, const MatMulKey& key) {
  if (!is_matmul_tuning() || is_recording_graph()) return first_plan(stream.device, key);
  // If c is also an input, trials write to memory of their own. So the product can run again and again.
  const bool accumulates = k.residual && k.residual.data == k.c.data;
  const Memory scratch = accumulates ? allocate(k.c.bytes(), stream) : nullptr;
  MatMul trial = k;
  if (accumulates) trial.c.data = scratch.get();
  return fastest_plan(stream, key, [&](const Candidate& candidate) {
    if (multiply(stream, trial, candidate) != CUBLAS_STATUS_SUCCESS) return false;
    finish(stream, trial, candidate.epilogue);
    sum(stream, trial, candidate.epilogue);
    return true;
  });
}

/// Returns the stored plan for the key, or makes a new one.
MatMulPlan settle_plan(const CudaStream& stream, const MatMul& k, const MatMulKey& key) {
  if (std::optional<MatMulPlan> kept = find_plan(key)) {
    const char* problem = Product(key, kept->epilogue).refuses(stream.device, kept->algorithm);
    if (problem == nullptr) return *kept;
    require(is_matmul_tuning(), "the plan for the product of ", k.a.shape, " and ", k.b.shape,
            " does not run on this GPU (", problem, "): ", advice_about(foreign_plans, "import other plans"));
    log_warning(concat("a stored plan does not run (", problem, ") and is replaced: ", to_text(key)));
    forget_plan(key);
  }
  return keep_plan(key, make_plan(stream, k, key));
}

/// A plan with its descriptors. Each thread has its own, because addresses are written into them.
struct Prepared {
  Prepared(const MatMulKey& key, const MatMulPlan& chosen) : plan(chosen), product(key, chosen.epilogue) {}

  MatMulPlan plan;
  Product product;
};

Prepared& prepare(const CudaStream& stream, const MatMul& k) {
  thread_local std::unordered_map<MatMulKey, Prepared, MatMulKeyHash> prepared;
  thread_local uint64_t generation = 0;
  if (const uint64_t now = plans_generation(); generation != now) {
    prepared.clear();
    generation = now;
  }
  const MatMulKey key = MatMulKey::of(k);
  if (const auto found = prepared.find(key); found != prepared.end()) return found->second;
  const MatMulPlan plan = settle_plan(stream, k, key);
  return prepared.try_emplace(key, key, plan).first->second;
}

}  // namespace
}  // namespace cuda

void run(CudaStream stream, const MatMul& k) {
  expect(k.a.dtype != DType::f64,
         "a product of f64 runs on the CPU only: f32, bf16 or f16 is needed on a GPU");
  cuda::Epilogue done = cuda::Epilogue::none;
  if (k.m() > 0 && k.n() > 0) {
    if (k.k() > 0) {
      cuda::Prepared& prepared = cuda::prepare(stream, k);
      done = prepared.plan.epilogue;
      cuda::check(cuda::multiply(stream, k, {done, &prepared.product, prepared.plan.algorithm}),
                  "a product of matrices");
    } else {
      cuda::multiply_nothing(stream, k);
    }
    cuda::finish(stream, k, done);
  }
  cuda::sum(stream, k, done);
}

}  // namespace lockstep
