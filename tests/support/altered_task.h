// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/task.h"

namespace lockstep {

/// A task whose parts a test may replace. It begins as a copy of another one, to which it refers.
struct AlteredTask final : TrainingTask {
  explicit AlteredTask(const TrainingTask& of)
      : original(of),
        training(of.training_data()),
        validation(of.validation_data()),
        given(of.facts()),
        on_loss([&of](const Tensor& inputs, const Tensor& targets, const Context& context) {
          return of.loss(inputs, targets, context);
        }),
        on_sample_text([&of](const std::function<bool()>& go_on) { return of.sample_text(go_on); }) {}

  std::vector<NamedTensor> parameters() const override { return original.parameters(); }
  std::shared_ptr<const Dataset> training_data() const override { return training; }
  std::shared_ptr<const Dataset> validation_data() const override { return validation; }
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context& context) const override {
    return on_loss(inputs, targets, context);
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override {
    return original.make_optimizer(space);
  }
  TaskFacts facts() const override { return given; }
  ParameterGroup group(const std::string& name, const Tensor& tensor) const override {
    return original.group(name, tensor);
  }
  bool load_initial_values(const World& world, PlacedTensors& tensors) const override {
    return original.load_initial_values(world, tensors);
  }
  ModelLayout layout() const override { return original.layout(); }
  std::string sample_text(const std::function<bool()>& go_on) const override { return on_sample_text(go_on); }

  const TrainingTask& original;
  std::shared_ptr<const Dataset> training, validation;
  TaskFacts given;
  std::function<Tensor(const Tensor& inputs, const Tensor& targets, const Context& context)> on_loss;
  std::function<std::string(const std::function<bool()>& go_on)> on_sample_text;
};

}  // namespace lockstep
