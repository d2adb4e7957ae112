// SPDX-License-Identifier: Apache-2.0
#include "snapshot/resume.h"

#include <map>

#include "core/error.h"
#include "tensor/create.h"
#include "tensor/safetensors.h"

namespace lockstep {

void restore(const Snapshot& snapshot, Optimizer& optimizer) {
  restore_tensors(snapshot.model, optimizer.space().named(), "the snapshot's model");
  optimizer.space().refresh_copies();
  restore_tensors(snapshot.optimizer, optimizer.state(), "the snapshot's optimizer");
  optimizer.set_steps_taken(snapshot.optimizer_steps);
}

}  // namespace lockstep
