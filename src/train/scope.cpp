// SPDX-License-Identifier: Apache-2.0
#include "train/scope.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "core/version.h"
#include "kernels/matmul_plans.h"
#include "kernels/processor.h"

namespace lockstep {
namespace {

// The exact kernels of a GPU give other bits than those with approximate instructions.
#if defined(LOCKSTEP_CUDA_EXACT)
constexpr const char* kind_of_kernels = ", exact kernels";
#else
constexpr const char* kind_of_kernels = "";
#endif

}  // namespace

std::string scope_of_bits(const Job& job, const World& world) {
  const std::string device = device_of(current_stream()) == Device::cuda
                                 ? concat("GPU (", place_of_matmul_plans(), kind_of_kernels, ")")
                             : uses_bf16_unit() ? "CPU with AMX"
                                                : "CPU";
  const std::string sums = job.dist.reduction == Reduction::native
                               ? concat(", native sums of ", counted(world.size(), "rank"))
                               : "";
  return concat(device, ", arithmetic ", arithmetic_version, sums);
}

void compare_scope(const Snapshot& snapshot, const std::string& here) {
  if (snapshot.scope == here) return;
  const std::string there = snapshot.scope.empty() ? "an earlier version of this program" : snapshot.scope;
  log_warning(concat("the snapshot of step ", snapshot.step, " was written in another scope of bits: ", there,
                     ". This run resumes in: ", here,
                     ". From here on its bits may differ from those of a run that was never interrupted"));
}

}  // namespace lockstep
