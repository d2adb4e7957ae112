// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/task.h"

#include "lockstep/parameters/parameter_rules.h"

namespace lockstep {

ParameterGroup TrainingTask::group(const std::string& name, const Tensor& /*tensor*/) const {
  return rules_ ? rules_->group(name, {}) : ParameterGroup{};
}

void TrainingTask::use_rules(const OptimizerOptions& options) {
  rules_ = std::make_shared<const ParameterRules>(options, parameters());
}

}  // namespace lockstep
