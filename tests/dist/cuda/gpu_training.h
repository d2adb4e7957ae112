// SPDX-License-Identifier: Apache-2.0
// Data parallelism on GPUs with a model whose losses and gradients are given. The tests check only what the
// engine does with them.
#pragma once

#include <cmath>
#include <gtest/gtest.h>

#include "dist/cuda/gpu_ranks.h"
#include "dist/momentum.h"
#include "dist/reference_tree.h"
#include "lockstep/core/error.h"
#include "lockstep/core/graph.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

constexpr int64_t sizes[] = {5000, 700, 3, 4500, 20};
constexpr int steps = 3;

inline float value_at(int step, int replica, int micro, int64_t i) {
  const double angle = 0.53 * static_cast<double>(i) + 1.9 * replica + 0.7 * micro + 0.3 * step;
  return static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>((i * 3 + replica * 7) % 19) - 9));
}

/// Returns the values of one micro-batch: its loss, then the gradients of all parameters.
inline std::vector<float> values_of(int step, int replica, int micro) {
  int64_t count = 1;
  for (const int64_t size : sizes) count += size;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(value_at(step, replica, micro, i));
  return values;
}

/// Returns the mean over replicas of the sums over micro-batches. The loss is the mean over both.
inline std::vector<float> reference_step(int step, int replicas, int accumulate) {
  std::vector<std::vector<float>> of_replica;
  for (int v = 0; v < replicas; ++v) {
    std::vector<float> sum;
    for (int micro = 0; micro < accumulate; ++micro) {
      std::vector<float> next = values_of(step, v, micro);
      next[0] *= 1.0f / static_cast<float>(accumulate);
      for (size_t i = 0; i < sum.size(); ++i) next[i] = sum[i] + next[i];
      sum = next;
    }
    of_replica.push_back(sum);
  }
  std::vector<float> mean;
  for (size_t i = 0; i < of_replica[0].size(); ++i) {
    std::vector<float> leaves;
    for (const auto& values : of_replica) leaves.push_back(values[i]);
    mean.push_back(reference_tree_sum(leaves) * (1.0f / static_cast<float>(replicas)));
  }
  return mean;
}

/// A model whose forward reads its parameters one after another. Its loss and its gradients are the values
/// that were loaded.
struct Model {
  std::vector<NamedTensor> parameters;
  std::vector<Tensor> seen;  ///< the parameters' values in the last forward, in f32

  explicit Model(int seed = 0) {
    for (size_t p = 0; p < std::size(sizes); ++p) {
      parameters.push_back({concat("p", p), zeros({sizes[p]}).set_requires_grad()});
      seen.push_back(zeros({sizes[p]}));
      fill_uniform(parameters.back().tensor, -1.0, 1.0, static_cast<uint64_t>(seed),
                   static_cast<uint32_t>(p));
    }
  }
  Tensor loss(const Tensor& values) const {
    Tensor y = empty({});
    copy(values.slice(0, 1), y);
    int64_t begin = 1;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Tensor& parameter = parameters[p].tensor;
      const DType dtype = parameter.compute_dtype();
      if (dtype == DType::f32)
        launch(parameter.stream(), Scale{.x = parameter.view(), .y = seen[p].view(), .factor = 1.0});
      else
        launch(parameter.stream(), Convert{.x = parameter.operand(dtype), .y = seen[p].view()});
      const Tensor given = values.slice(begin, begin + sizes[p]), next = empty({});
      begin += sizes[p];
      copy(y, next);
      y = record("given", next, {y, parameter}, [given](const Tensor& dy) -> Gradients {
        return {dy, given};
      });
    }
    return y;
  }
};

struct Setting {
  int ranks = 1;
  bool is_recorded = false;
  bool by_owners = true;
  DType precision = DType::f32;
  DataParallel::Options options = {};
};

inline std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.options.replicas << " replicas on " << setting.ranks << " ranks, accumulate "
             << setting.options.accumulate << ", " << name(setting.options.transport) << ", shard "
             << name(setting.options.shard) << " in groups of " << setting.options.group << ", offload "
             << name(setting.options.offload) << ", " << setting.precision
             << (setting.by_owners ? ", step()" : ", wait()") << (setting.is_recorded ? ", recorded" : "");
}

inline std::vector<float> numbers(const Tensor& tensor) {
  std::vector<float> values;
  for (const double value : to_doubles(tensor)) values.push_back(static_cast<float>(value));
  return values;
}

/// Returns the values of these ranges.
inline std::vector<float> parts(const std::vector<float>& all, const Placement& placement) {
  std::vector<float> some;
  for (const Range& range : placement.ranges())
    some.insert(some.end(), all.begin() + range.begin, all.begin() + range.end);
  return some;
}

/// The result of a run: the values of all elements after each step, and the momenta in this rank's memory at
/// the end.
struct Outcome {
  std::vector<std::vector<float>> values;
  std::vector<float> states;
};

inline std::vector<float> gather_values(DataParallel& ddp, const ParameterSpace& space) {
  std::vector<float> all;
  for (int unit = 0; unit < static_cast<int>(space.layout.units().size()); ++unit)
    for (const float value : numbers(ddp.values.gather(unit))) all.push_back(value);
  return all;
}

/// Compares the losses and gradients of a step with the definition. Compares the values that the step has
/// read with `before`.
inline void check_step(const Setting& setting, int step, DataParallel& ddp, ParameterSpace& space,
                       const Model& model, const std::vector<float>& before) {
  const std::vector<float> expected =
      reference_step(step, setting.options.replicas, setting.options.accumulate);
  EXPECT_EQ(numbers(ddp.summary.mean_loss()), std::vector<float>{expected[0]})
      << setting << ", step " << step;
  std::vector<float> flat(static_cast<size_t>(space.layout.trainable_elements()));
  auto next = expected.begin() + 1;
  for (const Parameter& parameter : space.layout.parameters()) {
    std::copy_n(next, parameter.tensor.size(), flat.begin() + parameter.place.begin);
    next += parameter.tensor.size();
  }
  const FlatBuffer& gradients = space.gradients();
  EXPECT_EQ(numbers(gradients.memory()), parts(flat, gradients.placement())) << setting << ", step " << step;
  for (size_t p = 0; p < std::size(sizes); ++p) {
    const Range place = space.layout.parameters()[p].place;
    std::vector<float> values(before.begin() + place.begin, before.begin() + place.end);
    if (setting.precision != DType::f32)
      values = numbers(convert(from_values(values, {place.size()}), setting.precision));
    EXPECT_EQ(numbers(model.seen[p]), values) << setting << ", step " << step << ", parameter " << p;
  }
}

inline Outcome run(const Setting& setting, Communicator& communicator, const Stream& stream) {
  const Model model(communicator.rank());  // only rank 0's values count
  ParameterSpace space(model.parameters);
  space.set_precision(setting.precision);
  DataParallel ddp(space, World(communicator.shared_from_this()), setting.options);
  Momentum optimizer(space);
  std::vector<Tensor> given;
  const auto size = static_cast<int64_t>(values_of(0, 0, 0).size());
  const std::vector<MicroBatch>& micro_batches = ddp.setup.micro_batches;
  for (size_t i = 0; i < micro_batches.size(); ++i) given.push_back(empty({size}));
  const auto enqueue = [&] {
    ddp.begin_step();
    for (const Tensor& values : given) ddp.backward(model.loss(values));
    if (setting.by_owners) return ddp.update(optimizer, 1.0);
    ddp.finish();
    optimizer.update(measure_gradient_norm(space, 1.0).factor);
  };
  std::unique_ptr<Graph> graph;
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    const std::vector<float> before = step > 0 ? outcome.values.back() : gather_values(ddp, space);
    for (size_t i = 0; i < given.size(); ++i)
      copy(from_values(values_of(step, micro_batches[i].replica, micro_batches[i].index), {size}), given[i]);
    if (step == 1 && setting.is_recorded) graph = std::make_unique<Graph>(stream, enqueue);
    optimizer.prepare(0.1);
    graph ? ddp.replay(*graph) : enqueue();
    if (setting.by_owners) {
      EXPECT_THROW(model.parameters[0].tensor.grad(), Error);
    }
    if (setting.by_owners && !ddp.setup.sharding.cuts_gradients()) ddp.gather_gradients();
    check_step(setting, step, ddp, space, model, before);
    ddp.check();
    outcome.values.push_back(gather_values(ddp, space));
  }
  ddp.place_states(optimizer);
  const FlatBuffer& states = optimizer.states()[0].flat;
  const auto rank = static_cast<size_t>(communicator.rank());
  for (const Range& range :
       setting.by_owners ? ddp.setup.sharding.updates[rank] : states.placement().ranges())
    for (const float value : numbers(states.part(range))) outcome.states.push_back(value);
  return outcome;
}

/// Runs the setting on all ranks. Values and states must be those of one rank that updates everything.
inline void expect_outcome(const Setting& setting, const Outcome& expected) {
  run_gpu_ranks(setting.ranks, [&](Communicator& communicator, const Stream& stream) {
    const Outcome outcome = run(setting, communicator, stream);
    ASSERT_EQ(outcome.values, expected.values) << setting;
    Placement placement = Placement::whole(static_cast<int64_t>(expected.states.size()));
    if (setting.by_owners || setting.options.shard != Shard::none ||
        setting.options.offload != Offload::none) {
      const ParameterSpace space(Model().parameters);
      const Sharding sharding(space, setting.options.shard, setting.ranks, setting.options.group,
                              setting.options.offload);
      placement = Placement(sharding.updates[static_cast<size_t>(communicator.rank())]);
    }
    ASSERT_EQ(outcome.states, parts(expected.states, placement)) << setting;
  });
}

inline Outcome of_one_rank(int replicas, int accumulate, DType precision = DType::f32) {
  Outcome outcome;
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream& stream) {
    outcome = run({.by_owners = false,
                   .precision = precision,
                   .options = {.replicas = replicas, .accumulate = accumulate}},
                  communicator, stream);
  });
  return outcome;
}

struct Cut {
  Shard stage;
  int group;
};

inline std::vector<Cut> cuts_of(int ranks) {
  if (ranks == 1) return {{Shard::none, 0}};
  std::vector<Cut> cuts = {{Shard::none, 0}, {Shard::optimizer, 0}, {Shard::gradients, 0}, {Shard::full, 0}};
  if (ranks == 4) cuts.push_back({Shard::full, 2});
  return cuts;
}

class GpuDataParallel : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPU(); }
};

}  // namespace lockstep
