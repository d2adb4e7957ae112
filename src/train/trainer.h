// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"
#include "data/loader.h"
#include "dist/data_parallel.h"
#include "nn/module.h"
#include "parameters/optimizer.h"
#include "snapshot/snapshot_files.h"

namespace lockstep {

/// A model, its data and its rules: everything that the training loop must be given.
struct TrainingTask {
  std::vector<NamedTensor> parameters;
  /// Returns the mean loss of a batch.
  std::function<Tensor(const Tensor& inputs, const Tensor& targets, const Context& context)> loss;
  GroupRule group = {};  ///< how optimizers treat each parameter; without a rule all are treated alike
  std::function<std::unique_ptr<Optimizer>(ParameterSpace& space)> make_optimizer;
  std::string description;  ///< lines to log once the run is accepted; may be empty
  std::shared_ptr<const Dataset> training_data;
  std::shared_ptr<const Dataset> validation_data;  ///< may be null
  bool shuffle = true;
  std::string unit = "samples";  ///< the unit of speed: "tokens" if a sample has several
  int64_t tokens_per_sample = 1;
  double flops_per_token = 0.0;                  ///< forward and backward
  std::map<std::string, std::string> artifacts;  ///< stored in snapshots; must be equal when a run resumes

  /// Optional: generates a sample text. After each token it calls go_on() and ends when that returns false.
  std::function<std::string(const std::function<bool()>& go_on)> sample_text;
  /// Optional: loads the initial values of a new run, on all ranks. Without it they are the model's.
  std::function<void(const World& world, PlacedTensors& tensors)> initial_values;
  std::function<ModelLayout()> layout;  ///< optional: describes snapshots to other programs
  double planned_bytes = 0.0;           ///< the planned peak memory of a rank; 0: no plan
  std::string user_program = {};        ///< this build's program that uses the model: "generate"
  /// Optional: returns the text that rank 0 prints when epochs `first` to `last`, from 0, start: whole lines.
  /// A replica's first batch has `batch_size` samples. An epoch has `steps` steps.
  std::function<std::string(int64_t first, int64_t last, int64_t batch_size, int64_t steps)> epoch_text;
};

/// Runs a training from its newest snapshot, or from the start, to its end: steps, evaluation, metrics and
/// snapshots. RunFolder describes what happens if log.dir already holds a run. Every rank calls it with its
/// own objects for the same task. Returns the exit code. Throws UserError for errors that the user can fix.
int train(Config config, const World& world, const TrainingTask& task);

/// Converts train.epochs to train.steps, now that the data are known. train() calls it. Throws UserError if
/// the number of steps or train.patience does not fit the data.
void settle_steps(Config& config, const std::shared_ptr<const Dataset>& training, bool has_validation);

/// Returns the dtype of activations and matmuls.
DType precision_of(const Config& config);
/// Converts a value of dist.shard. settle() has already replaced PyTorch's names.
Shard shard_of(const std::string& stage);
/// Converts a value of dist.offload.
Offload offload_of(const std::string& what);
/// Throws UserError if dist.shard or dist.offload does not fit the other keys or the number of ranks.
void require_sharding(const Config& config, int ranks);

/// Completes a configuration in the same way on all ranks; all call it. Keys that are not set get the values
/// of an earlier run that resumes, which is logged. Sets the number of threads of each rank. Throws UserError
/// naming the key and both values if configurations or arithmetic versions of ranks differ.
void settle(Config& config, const World& world);

/// Prints a text that the user asked for, such as --version, once for all ranks. Returns the exit code 0.
int print_once(const std::string& text);
/// Prints the text of --help like print_once(), wrapped for the terminal.
int print_help(const std::string& text);

/// Joins the other ranks, completes the configuration with settle(), and selects a GPU if train.device =
/// cuda. Every training program calls it first.
World start_world(Config& config);

}  // namespace lockstep
