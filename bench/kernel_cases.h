// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "tensor/create.h"

namespace lockstep {

/// A kernel with its operands, ready to run on the current stream.
struct Work {
  static Work by_flops(std::function<void()> run, double flops) {
    Work work;
    work.run = std::move(run);
    work.flops = flops;
    return work;
  }
  static Work by_bytes(std::function<void()> run, int64_t bytes) {
    Work work;
    work.run = std::move(run);
    work.bytes = bytes;
    return work;
  }

  std::function<void()> run = {};
  double flops = 0;                 ///< rated against the FMA loop, if not zero; else
  int64_t bytes = 0;                ///< each operand's bytes once: rated against a copy that moves as many
  std::function<void()> peer = {};  ///< the same result by Eigen
};

/// One row of the table. Operands are made only when its turn comes.
struct KernelCase {
  std::string kernel;
  std::string shape;
  std::function<Work()> prepare;
};

/// Products of GPT training, y = x W^T and its two gradients, for `rows` tokens.
std::vector<KernelCase> matmul_cases();
/// All other kernels of a training step.
std::vector<KernelCase> other_cases();

/// Uniform random numbers in [-1, 1).
inline Tensor random_tensor(const Shape& shape) {
  Tensor tensor = empty(shape);
  fill_uniform(tensor, -1.0, 1.0, 1, 0);
  return tensor;
}

/// Launches the kernel, and keeps its operands alive.
template <Kernel K>
std::function<void()> launching(K kernel, std::vector<Tensor> operands) {
  return [kernel = std::move(kernel), operands = std::move(operands)] { launch(current_stream(), kernel); };
}

}  // namespace lockstep
