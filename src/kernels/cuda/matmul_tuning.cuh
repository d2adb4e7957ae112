// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "kernels/cuda/matmul_product.cuh"

namespace lockstep::cuda {

/// One way to compute a product.
struct Candidate {
  Epilogue epilogue;
  Product* product;
  Algorithm algorithm;
};

/// cuBLASLt's first suggestion for the epilogue that saves most work. Throws Error if there is none at all.
MatMulPlan first_plan(int device, const MatMulKey& key);

/// The way with the smallest median time, measured on the stream, over all epilogues and up to 32 suggestions
/// for each. `attempt` enqueues the whole operation, or returns false if cuBLASLt refuses. Waits for the GPU.
MatMulPlan fastest_plan(const CudaStream& stream, const MatMulKey& key,
                        const std::function<bool(const Candidate&)>& attempt);

}  // namespace lockstep::cuda
