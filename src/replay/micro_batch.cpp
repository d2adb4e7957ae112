// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/micro_batch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operation_observer.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/tensor/tensor_state.h"

namespace lockstep {
namespace {

Tensor on_cpu(const Tensor& tensor) {
  const Tensor copied = empty(tensor.shape(), tensor.dtype(), cpu_stream());
  copy_bytes(copied.view().data, cpu_stream(), tensor.view().data, tensor.stream(), tensor.view().bytes());
  return copied;
}

/// Lists what a thread computes, in a scope. Reading a tensor is an operation that it does not list.
class Tracer final : public OperationObserver {
 public:
  Tracer(MicroBatchTrace& trace, const ParameterSpace& space, bool keeps_tensors)
      : trace_(trace), keeps_tensors_(keeps_tensors) {
    for (const Parameter& parameter : space.layout.parameters())
      names_[parameter.tensor.id()] = parameter.name;
    current() = this;
  }
  ~Tracer() override { current() = nullptr; }

  void computed(const char* operation, const Tensor& y, std::span<const Tensor> inputs) override {
    TracedTensor traced{.operation = operation};
    // These share memory with a tensor that is listed, or that an operation is still to fill.
    if (traced.operation == "slice" || traced.operation == "reshape") return;
    for (const Tensor& input : inputs)
      if (traced.parameter.empty() && input) traced.parameter = name_of(input.id());
    if (traced.operation == losses_of_rows) trace_.losses = on_cpu(y);
    add(std::move(traced), y);
  }

  void differentiated(const char* operation, const Tensor& gradient, size_t i,
                      std::span<const void* const> inputs) override {
    TracedTensor traced{.is_gradient = true, .operation = operation, .parameter = name_of(inputs[i])};
    traced.is_of_parameter = !traced.parameter.empty();
    traced.input = static_cast<int64_t>(i);
    for (const void* input : inputs)
      if (traced.parameter.empty()) traced.parameter = name_of(input);
    add(std::move(traced), gradient);
  }

 private:
  std::string name_of(const void* id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? "" : found->second;
  }

  void add(TracedTensor traced, const Tensor& tensor) {
    current() = nullptr;
    const NoGrad no_grad;
    traced.shape = tensor.shape();
    traced.dtype = tensor.dtype();
    const Tensor values = on_cpu(tensor);
    traced.hash = elements_hash(values);
    traced.statistics = statistics_of(values);
    if (keeps_tensors_) traced.values = values;
    trace_.tensors.push_back(std::move(traced));
    current() = this;
  }

  MicroBatchTrace& trace_;
  bool keeps_tensors_;
  std::map<const void*, std::string> names_;  ///< only looked up
};

Context context_of(const MicroBatchInput& input, const Job& job, const Stream& stream) {
  const auto number = [&stream](double value) { return full({}, value, DType::f32, stream); };
  return {.training = true,
          .seed = job.seed(),
          .step = static_cast<uint32_t>(input.step - 1),
          .sample = static_cast<uint32_t>(input.batch.first_sample),
          .loss_scale = input.loss_scale ? full({1}, *input.loss_scale, DType::f32, stream) : Tensor(),
          .inverse_count = input.inverse_count ? number(*input.inverse_count) : Tensor()};
}

}  // namespace

Statistics statistics_of(const Tensor& tensor) {
  Statistics statistics{.count = tensor.size()};
  double sum = 0.0, squares = 0.0;
  for (const double value : to_doubles(tensor)) {
    if (!std::isfinite(value)) {
      ++statistics.not_finite;
      continue;
    }
    statistics.zeros += value == 0.0 ? 1 : 0;
    sum += value;
    squares += value * value;
    statistics.largest = std::max(statistics.largest, std::abs(value));
  }
  const auto finite = static_cast<double>(std::max<int64_t>(1, statistics.count - statistics.not_finite));
  statistics.mean = sum / finite;
  statistics.root_mean_square = std::sqrt(squares / finite);
  return statistics;
}

uint64_t elements_hash(const Tensor& tensor) {
  const Tensor values = to_stream(tensor, cpu_stream());
  return hash_of(
      {reinterpret_cast<const char*>(values.view().data), static_cast<size_t>(values.view().bytes())});
}

std::string TracedTensor::name() const {
  const std::string of = parameter.empty() ? "" : concat(" (", parameter, ")");
  if (!is_gradient) return concat("forward: ", operation, of);
  if (is_of_parameter) return concat("backward: the gradient of ", parameter, " by ", operation);
  return concat("backward: the gradient of input ", input, " of ", operation, of);
}

MicroBatchReplay::MicroBatchReplay(const RunTasks& tasks)
    : tasks_(tasks),
      task_(tasks.make()),
      space_(task_->parameters(), {.seed = tasks.job().seed(), .group = task_->group_rule()}) {
  space_.set_precision(tasks.job().compute.precision);
}

void MicroBatchReplay::load(const ParameterSpace& from) {
  copy(from.values().memory(), space_.values().memory());
  space_.copies.refresh();
}

void MicroBatchReplay::load(const std::vector<NamedTensor>& values, const std::string& origin) {
  std::vector<NamedTensor> targets;
  for (const Parameter& parameter : space_.layout.parameters())
    targets.push_back({parameter.name, parameter.tensor.detach()});
  restore_tensors(values, targets, origin);
  space_.copies.refresh();
}

std::vector<NamedTensor> MicroBatchReplay::values() const {
  std::vector<NamedTensor> values;
  for (const Parameter& parameter : space_.layout.parameters())
    values.push_back({parameter.name, on_cpu(parameter.tensor.detach())});
  return values;
}

MicroBatchTrace MicroBatchReplay::run(const MicroBatchInput& input, bool keeps_tensors) {
  MicroBatchTrace trace;
  const Job& job = tasks_.job();
  const Stream& stream = space_.layout.stream();
  const Context context = context_of(input, job, stream);
  space_.gradients.bind(full({space_.layout.trainable_elements()}, 0.0, DType::f32, stream));
  {
    const Tracer tracer(trace, space_, keeps_tensors);
    const Tensor loss =
        task_->loss(to_stream(input.batch.inputs, stream), to_stream(input.batch.targets, stream), context);
    trace.loss = static_cast<float>(to_doubles(loss.detach())[0]);
    const TrainedSpace trained(space_.memory());
    const double factor = 1.0 / static_cast<double>(job.batches.accumulate);
    context.loss_scale ? backward(loss, factor, context.loss_scale) : backward(loss, factor);
  }
  for (const Parameter& parameter : space_.layout.parameters()) {
    if (parameter.is_frozen) continue;
    trace.parameters.push_back({.name = parameter.name,
                                .shape = parameter.tensor.shape(),
                                .value = statistics_of(parameter.tensor.detach()),
                                .gradient = on_cpu(leaf_gradient(parameter.tensor).buffer)});
  }
  return trace;
}

}  // namespace lockstep
