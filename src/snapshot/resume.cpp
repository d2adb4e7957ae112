// SPDX-License-Identifier: Apache-2.0
#include "snapshot/resume.h"

#include <map>

#include "core/error.h"
#include "nn/precision.h"
#include "tensor/create.h"
#include "tensor/safetensors.h"

namespace lockstep {

void restore(const Snapshot& snapshot, const std::vector<NamedTensor>& parameters, Optimizer& optimizer) {
  restore_tensors(snapshot.model, parameters, "the snapshot's model");
  refresh_compute_copies(parameters);
  restore_tensors(snapshot.optimizer, optimizer.state(), "the snapshot's optimizer");
  optimizer.set_steps_taken(snapshot.optimizer_steps);
}

}  // namespace lockstep
