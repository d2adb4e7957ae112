// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "case_sizes.h"
#include "kernels/kernel.h"
#include "tensor/create.h"

namespace lockstep {

/// A kernel with its operands, ready to run on the current stream.
struct Work {
  std::function<void()> run = {};
  double flops = 0;                 ///< rated against a ceiling of operations, if not zero; else
  int64_t bytes = 0;                ///< each operand's bytes once: rated against a copy
  int64_t footprint = 0;            ///< bytes of all operands: what a cache would have to hold
  bool has_plan = false;            ///< a product, which a GPU computes by a plan that can be tuned
  std::function<void()> peer = {};  ///< the same result by Eigen, on the CPU
};

/// One row of the table. Operands are made only when its turn comes, and each time anew.
struct KernelCase {
  std::string kernel;
  std::string shape;
  std::function<Work()> prepare;
};

/// Products of GPT training, y = x W^T and its two gradients, alone and with what is fused to them.
std::vector<KernelCase> matmul_cases(const CaseSizes& sizes);
/// All other kernels of a training step.
std::vector<KernelCase> other_cases(const CaseSizes& sizes);

/// Normal random numbers; past the first million they repeat.
Tensor random_tensor(const Shape& shape, DType dtype);

int64_t bytes_of(const std::vector<Tensor>& tensors);

/// Launches the kernel, and keeps its operands alive.
template <Kernel K>
Work work_of(K kernel, std::vector<Tensor> operands) {
  Work work;
  work.footprint = bytes_of(operands);
  work.run = [kernel = std::move(kernel), operands = std::move(operands)] {
    launch(current_stream(), kernel);
  };
  return work;
}

/// The same, rated by floating-point operations.
template <Kernel K>
Work computing(K kernel, std::vector<Tensor> operands, double flops) {
  Work work = work_of(std::move(kernel), std::move(operands));
  work.flops = flops;
  return work;
}

/// The same, rated by the bytes that it has to move: those of its operands unless given.
template <Kernel K>
Work moving(K kernel, std::vector<Tensor> operands, int64_t bytes = 0) {
  Work work = work_of(std::move(kernel), std::move(operands));
  work.bytes = bytes ? bytes : work.footprint;
  return work;
}

}  // namespace lockstep
