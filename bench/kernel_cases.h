// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "case_sizes.h"
#include "lockstep/kernels/cost.h"
#include "lockstep/kernels/kernel.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

/// A kernel with its operands, ready to run on the current stream.
struct Work {
  std::function<void()> run = {};
  double flops = 0;                 ///< if not zero, the case is rated against the FLOP/s ceiling
  int64_t bytes = 0;                ///< bytes to move, rated against a copy if `flops` is zero
  int64_t footprint = 0;            ///< bytes of all operands, to compare with the cache size
  bool has_plan = false;            ///< true for a matmul, whose plan can be tuned on a GPU
  std::function<void()> peer = {};  ///< computes the same result with Eigen on the CPU
};

/// One row of the table. Each call of prepare() makes new operands.
struct KernelCase {
  std::string kernel;
  std::string shape;
  std::function<Work()> prepare;
};

/// Returns the matmuls of GPT training: y = x W and its two gradients. Each is timed alone; those of the MLP
/// also with fused operations.
std::vector<KernelCase> matmul_cases(const CaseSizes& sizes);
/// Returns all other kernels of a training step of GPT.
std::vector<KernelCase> other_cases(const CaseSizes& sizes);
/// Returns the kernels that a training step of Llama or Qwen adds.
std::vector<KernelCase> llama_cases(const CaseSizes& sizes);
std::vector<KernelCase> function_cases(const CaseSizes& sizes);

enum class NormKind { layer, rms };
/// Returns the forward of a norm of the last dimension. With a residual it also writes the sum of both
/// inputs.
Work norm_forward(NormKind kind, const Shape& shape, DType dtype, bool has_residual);
/// Returns the backward. With has_carried, dx is added to the gradient that x has from the residual stream.
Work norm_backward(NormKind kind, const Shape& shape, DType dtype, bool has_carried);

/// Returns normal random numbers. They repeat after the first 2^20.
Tensor random_tensor(const Shape& shape, DType dtype);

int64_t bytes_of(const std::vector<Tensor>& tensors);

/// Makes work that launches the kernel and keeps its operands alive.
template <Kernel K>
Work work_of(K kernel, std::vector<Tensor> operands) {
  Work work;
  work.footprint = bytes_of(operands);
  work.run = [kernel = std::move(kernel), operands = std::move(operands)] {
    launch(current_stream(), kernel);
  };
  return work;
}

/// Makes work that is rated by the floating-point operations of its contract.
template <Kernel K>
Work computing(K kernel, std::vector<Tensor> operands) {
  const double flops = cost(kernel).flops;
  Work work = work_of(std::move(kernel), std::move(operands));
  work.flops = flops;
  return work;
}

/// Makes work that is rated by the bytes of its contract. A contract without a cost moves each operand once.
template <Kernel K>
Work moving(K kernel, std::vector<Tensor> operands) {
  int64_t bytes = bytes_of(operands);
  if constexpr (requires { cost(kernel); }) bytes = static_cast<int64_t>(cost(kernel).bytes);
  Work work = work_of(std::move(kernel), std::move(operands));
  work.bytes = bytes;
  return work;
}

}  // namespace lockstep
