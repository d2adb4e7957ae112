// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/data/dataset.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/model_layout.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/parameters/update_options.h"

namespace lockstep {

namespace detail {
class ParameterRules;
}

/// Facts about a task.
struct TaskFacts {
  std::string description = {};  ///< lines to log once the run is accepted; may be empty
  bool shuffle = true;
  std::string unit = "samples";  ///< the unit of speed: "tokens" if a sample has several
  int64_t tokens_per_sample = 1;
  double flops_per_token = 0.0;  ///< forward and backward
  std::map<std::string, std::string> artifacts =
      {};                         ///< stored in snapshots; must be equal when a run resumes
  bool writes_samples = false;    ///< the model can generate a sample text
  bool names_epochs = false;      ///< epoch_text() returns texts
  std::string user_program = {};  ///< this build's program that uses the model: "generate"
};

/// A model, its data and its rules: everything that the training loop asks for. Every rank has its own object
/// for the same task. Only the first four functions must be defined.
class TrainingTask {
 public:
  TrainingTask() = default;
  virtual ~TrainingTask() = default;
  TrainingTask(const TrainingTask&) = delete;
  TrainingTask& operator=(const TrainingTask&) = delete;

  virtual std::vector<NamedTensor> parameters() const = 0;
  virtual std::shared_ptr<const Dataset> training_data() const = 0;
  /// Returns the mean loss of a batch, or the sum over its targets * context.inverse_count.
  virtual Tensor loss(const Tensor& inputs, const Tensor& targets, const Context& context) const = 0;
  virtual std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const = 0;

  virtual TaskFacts facts() const { return {}; }
  /// Returns how optimizers treat a parameter: as use_rules() says.
  virtual ParameterGroup group(const std::string& name, const Tensor& tensor) const;
  /// Returns the data of validations; null: there are none.
  virtual std::shared_ptr<const Dataset> validation_data() const { return nullptr; }
  /// Loads the initial values of a new run, on all ranks. Returns false if they are the model's.
  virtual bool load_initial_values(const World& /*world*/, PlacedTensors& /*tensors*/) const { return false; }
  /// Describes snapshots to other programs.
  virtual ModelLayout layout() const { return {}; }
  /// Generates a sample text. After each token it calls go_on() and ends when that returns false.
  virtual std::string sample_text(const std::function<bool()>& /*go_on*/) const { return ""; }
  /// Returns the text that rank 0 prints when epochs `first` to `last`, from 0, start: whole lines. A
  /// replica's first batch has `batch_size` samples. An epoch has `steps` steps.
  virtual std::string epoch_text(int64_t /*first*/, int64_t /*last*/, int64_t /*batch_size*/,
                                 int64_t /*steps*/) const {
    return "";
  }

  /// Freezes and groups the parameters as train.freeze and train.groups say. Throws UserError if they do not
  /// fit the model. run_training_program() calls it.
  void use_rules(const OptimizerOptions& options);

  /// Returns group() as ParameterSpace takes it. It refers to the task.
  GroupRule group_rule() const {
    return [this](const std::string& name, const Tensor& tensor) { return group(name, tensor); };
  }

 private:
  std::shared_ptr<const detail::ParameterRules> rules_;
};

}  // namespace lockstep
