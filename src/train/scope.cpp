// SPDX-License-Identifier: Apache-2.0
#include "train/scope.h"

#include "core/error.h"
#include "core/log.h"
#include "core/processor.h"
#include "core/version.h"
#include "kernels/matmul_plans.h"

namespace lockstep {

std::string scope_of_bits() {
  const std::string device = device_of(current_stream()) == Device::cuda
                                 ? concat("GPU (", place_of_matmul_plans(), ")")
                                 : concat("CPU", uses_bf16_unit() ? " with AMX" : "");
  return concat(device, ", arithmetic ", arithmetic_version);
}

void compare_scope(const Snapshot& snapshot) {
  const std::string here = scope_of_bits();
  if (snapshot.scope == here) return;
  const std::string there = snapshot.scope.empty() ? "an earlier version of this program" : snapshot.scope;
  log_warning(concat("the snapshot of step ", snapshot.step, " was written in another scope of bits: ", there,
                     ". This run resumes in: ", here,
                     ". From here on its bits may differ from those of a run that was never interrupted"));
}

}  // namespace lockstep
