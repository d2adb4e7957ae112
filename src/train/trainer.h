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

/// What is trained: everything that the loop does not know by itself.
struct TrainingTask {
  std::vector<NamedTensor> parameters;
  /// The mean loss of a batch.
  std::function<Tensor(const Tensor& inputs, const Tensor& targets, const Context& context)> loss;
  GroupRule group = {};  ///< how optimizers treat each parameter; without a rule all are alike
  std::function<std::unique_ptr<Optimizer>(ParameterSpace& space)> make_optimizer;
  std::string description;  ///< lines for a person, said once the run is accepted; may be empty
  std::shared_ptr<const Dataset> training_data;
  std::shared_ptr<const Dataset> validation_data;  ///< or null
  bool shuffle = true;
  std::string unit = "samples";  ///< what is counted: "tokens" where a sample has several
  int64_t tokens_per_sample = 1;
  double flops_per_token = 0.0;                  ///< forward and backward
  std::map<std::string, std::string> artifacts;  ///< kept in snapshots; must be equal when one is resumed

  /// Optional: what the model writes now. After each token it asks whether it may go on.
  std::function<std::string(const std::function<bool()>& go_on)> sample_text;
  /// Optional: brings the values that a new run begins with, on all ranks; else they are those of the model.
  std::function<void(const World& world, PlacedTensors& tensors)> initial_values;
  std::function<ModelLayout()> layout;  ///< optional: what snapshots look like to others
  double planned_bytes = 0.0;           ///< what a rank was planned to take at most; 0: nobody planned
  std::string user_program = {};        ///< of this build, that uses the trained model: "generate"
  /// Optional: what rank 0 says at the start of epochs `first` to `last`, from 0: whole lines. Told are also
  /// the samples of a replica's first batch and the steps of an epoch.
  std::function<std::string(int64_t first, int64_t last, int64_t batch_size, int64_t steps)> epoch_text;
};

/// Runs a training from its newest snapshot (or the start) to its end: data, replicas, tree, clipping,
/// update, evaluation, metrics, snapshots; RunFolder says what it does where log.dir holds a run. Every rank
/// calls it with its own handle on the same task. Returns the exit code. Throws UserError for what the user
/// can mend.
int train(Config config, const World& world, const TrainingTask& task);

/// The dtype of activations and products.
DType precision_of(const Config& config);
/// What dist.shard means; PyTorch's names are settled before.
Shard shard_of(const std::string& stage);
/// What dist.offload means.
Offload offload_of(const std::string& what);
/// Throws UserError where what shall be cut or offloaded does not go with the rest, or with so many ranks.
void require_sharding(const Config& config, int ranks);

/// Settles what is open in a configuration, the same on all ranks, which all call it: where an earlier run
/// goes on, what nobody has set is as it was there, which is said. Then each rank has its threads. UserError
/// naming the key and both values where ranks would compute different bits: their configurations or the
/// versions of their programs' arithmetic differ.
void settle(Config& config, const World& world);

/// Prints what somebody asked about a program, once for all ranks. Returns the exit code.
int print_once(const std::string& text);

/// What every training program does first: joins the other ranks, settles the configuration, and takes a GPU
/// where it asks for one.
World start_world(Config& config);

}  // namespace lockstep
