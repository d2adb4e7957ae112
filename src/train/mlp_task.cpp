// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/mlp_task.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

Tensor MlpTask::loss(const Tensor& inputs, const Tensor& targets, const Context& /*context*/) const {
  return mean_squared_error(model_(inputs), targets);
}

std::unique_ptr<Optimizer> MlpTask::make_optimizer(ParameterSpace& space) const {
  return std::make_unique<Sgd>(space, Sgd::Options{.weight_decay = job_.optimizer.weight_decay});
}

TaskFacts MlpTask::facts() const {
  return {
      .description = concat("data: ", data_->size(), " random samples of 20 numbers\nmodel: Linear(20, 1), ",
                            count_parameters(parameters()), " parameters"),
      .flops_per_token = 6.0 * 20,
      .names_epochs = true};
}

std::string MlpTask::epoch_text(int64_t first, int64_t last, int64_t batch_size, int64_t steps) const {
  const std::string device = job_.on_gpu() ? "[GPU" : "[CPU";
  const std::string where = concat(" | Batchsize: ", batch_size, " | Steps: ", steps, "\n");
  const std::string others = ranks_ > 1 ? concat("-", ranks_ - 1) : "";
  if (first < last) return concat(device, 0, others, "] Epochs ", first, "-", last, where);
  std::string lines;
  for (int rank = 0; rank < ranks_; ++rank) lines += concat(device, rank, "] Epoch ", first, where);
  return lines;
}

}  // namespace lockstep
