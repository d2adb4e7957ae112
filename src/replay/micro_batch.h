// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/replay/run_tasks.h"

namespace lockstep {

/// Everything that the forward and the backward of one micro-batch read, besides the model.
struct MicroBatchInput {
  Batch batch;
  int64_t index = 0;  ///< of the replica's micro-batches
  int64_t step = 0;   ///< number of the step, from 1
  int64_t epoch = 0;
  std::optional<double> inverse_count = {};  ///< Step::inverse_count
  std::optional<float> loss_scale = {};      ///< only in fp16 runs
};

/// Facts about the elements of a tensor. Those that are not finite count in `not_finite` alone.
struct Statistics {
  int64_t count = 0;
  int64_t zeros = 0;
  int64_t not_finite = 0;
  double mean = 0.0;
  double root_mean_square = 0.0;
  double largest = 0.0;  ///< magnitude
};
Statistics statistics_of(const Tensor& tensor);

/// Returns the XXH3-64 of the elements as they are in memory, little-endian.
uint64_t elements_hash(const Tensor& tensor);

/// A tensor that a micro-batch computes: a result of an operation, or a gradient that its backward returns.
struct TracedTensor {
  bool is_gradient = false;
  std::string operation;
  std::string parameter = {};    ///< that the operation reads, or whose gradient this is; may be empty
  bool is_of_parameter = false;  ///< this is the gradient of `parameter`
  int64_t input = -1;            ///< the input whose gradient this is
  Shape shape = {};
  DType dtype = DType::f32;
  uint64_t hash = 0;
  Statistics statistics = {};
  Tensor values = {};  ///< on the CPU, if it was kept

  /// Returns the name in messages: "forward: linear (h.0.attn.c_attn.weight)".
  std::string name() const;
};

/// A parameter and its gradient in one micro-batch, the leaf of the tree of additions.
struct TracedParameter {
  std::string name;
  Shape shape;
  Statistics value;
  Tensor gradient;  ///< on the CPU
};

/// The computation of one micro-batch.
struct MicroBatchTrace {
  float loss = 0.0f;
  Tensor losses = {};                            ///< of the rows of a cross entropy, on the CPU; may be empty
  std::vector<TracedTensor> tensors = {};        ///< in the order of the computation
  std::vector<TracedParameter> parameters = {};  ///< trained ones, in the order of the model
};

/// A model that computes single micro-batches of a run, outside of a training.
class MicroBatchReplay {
 public:
  /// Makes a model with its initial values. Keeps a reference.
  explicit MicroBatchReplay(const RunTasks& tasks);

  ParameterSpace& space() { return space_; }
  /// Copies the values of another space of the same model.
  void load(const ParameterSpace& from);
  /// Loads values by name. Throws UserError that names `origin` and a parameter that is missing or has
  /// another shape.
  void load(const std::vector<NamedTensor>& values, const std::string& origin);
  /// Returns the values on the CPU.
  std::vector<NamedTensor> values() const;

  /// Computes a micro-batch. The gradients are the bits that enter the tree of additions if the replica has
  /// one micro-batch, else those that are added to it. `keeps_tensors`: the trace has the values of its
  /// tensors.
  MicroBatchTrace run(const MicroBatchInput& input, bool keeps_tensors);

 private:
  const RunTasks& tasks_;
  std::shared_ptr<TrainingTask> task_;
  ParameterSpace space_;
};

}  // namespace lockstep
