// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "lockstep/kernels/cuda/matmul_product.cuh"

namespace lockstep::cuda {

/// One way to compute a product.
struct Candidate {
  Epilogue epilogue;
  Product* product;
  Algorithm algorithm;
};

/// Returns cuBLASLt's first suggestion for the epilogue that saves most work, of those that are known to be
/// fast on this GPU. Throws Error if no epilogue has one.
MatMulPlan first_plan(int device, const MatMulKey& key);

/// Returns the plan with the smallest median time, over all epilogues and up to 32 suggestions for each.
/// Times are measured on the stream. `attempt` enqueues the whole operation, or returns false if cuBLASLt
/// refuses. Waits for the GPU.
MatMulPlan fastest_plan(const CudaStream& stream, const MatMulKey& key,
                        const std::function<bool(const Candidate&)>& attempt);

}  // namespace lockstep::cuda
