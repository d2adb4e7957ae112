// SPDX-License-Identifier: Apache-2.0
#include "train/resume.h"

#include <map>

#include "core/error.h"
#include "nn/precision.h"
#include "tensor/create.h"

namespace lockstep {

void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what) {
  std::map<std::string, Tensor> by_name;
  for (const NamedTensor& tensor : saved) by_name[tensor.name] = tensor.tensor;
  for (const auto& [name, tensor] : targets) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), what, " has no tensor ", name);
    require(found->second.shape() == tensor.shape() && found->second.dtype() == tensor.dtype(), what, ": ",
            name, " is ", found->second.dtype(), found->second.shape(), " where the model has ",
            tensor.dtype(), tensor.shape());
    copy(found->second, tensor);
  }
}

void restore(const Snapshot& snapshot, const std::vector<NamedTensor>& parameters, Optimizer& optimizer) {
  restore_tensors(snapshot.model, parameters, "the snapshot's model");
  refresh_compute_copies(parameters);
  restore_tensors(snapshot.optimizer, optimizer.state(), "the snapshot's optimizer");
  optimizer.set_steps_taken(snapshot.optimizer_steps);
}

}  // namespace lockstep
