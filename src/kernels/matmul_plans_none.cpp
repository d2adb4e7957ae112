// SPDX-License-Identifier: Apache-2.0
// The functions of matmul_plans.h in a build without CUDA, which has no plans.
#include "lockstep/core/error.h"
#include "lockstep/kernels/matmul_plans.h"

namespace lockstep {

void set_matmul_tuning(bool) {}

std::string place_of_matmul_plans() { return {}; }

std::string export_matmul_plans(bool) { return {}; }

void import_matmul_plans(const std::string& text) {
  require(text.empty(), "the matmul plans were made on a GPU, but this build has no CUDA");
}

}  // namespace lockstep
