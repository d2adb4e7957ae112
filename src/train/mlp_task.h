// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/job/job.h"
#include "lockstep/nn/layers.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// The task of train_mlp: the model and the data of the PyTorch DDP tutorials, Linear(20, 1) on 2048 random
/// samples.
class MlpTask final : public TrainingTask {
 public:
  /// Keeps a reference to the job. `ranks` are those that epoch_text() names.
  MlpTask(const Job& job, int ranks) : job_(job), ranks_(ranks) {}

  std::vector<NamedTensor> parameters() const override { return model_.parameters(); }
  std::shared_ptr<const Dataset> training_data() const override { return data_; }
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context& context) const override;
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override;
  TaskFacts facts() const override;
  std::string epoch_text(int64_t first, int64_t last, int64_t batch_size, int64_t steps) const override;

 private:
  const Job& job_;
  int ranks_;
  std::shared_ptr<const SyntheticRegression> data_ =
      std::make_shared<SyntheticRegression>(2048, 20, job_.seed());
  Mlp model_{{20, 1}};
};

}  // namespace lockstep
