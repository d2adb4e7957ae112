// SPDX-License-Identifier: Apache-2.0
// Data parallelism on GPUs with a model whose losses and gradients are given, so that only what happens to
// them is tested.
#include <cmath>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/graph.h"
#include "dist/cuda/gpu_ranks.h"
#include "dist/data_parallel.h"
#include "dist/momentum.h"
#include "dist/reference_tree.h"
#include "tensor/autograd.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

constexpr int64_t sizes[] = {5000, 700, 3};
constexpr int steps = 3;

float value_at(int step, int replica, int micro, int64_t i) {
  const double angle = 0.53 * static_cast<double>(i) + 1.9 * replica + 0.7 * micro + 0.3 * step;
  return static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>((i * 3 + replica * 7) % 19) - 9));
}

/// The values of one micro-batch: its loss, then the gradients of all parameters.
std::vector<float> values_of(int step, int replica, int micro) {
  int64_t count = 1;
  for (const int64_t size : sizes) count += size;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(value_at(step, replica, micro, i));
  return values;
}

/// The mean over replicas of the sums over micro-batches; the loss is their mean.
std::vector<float> reference_step(int step, int replicas, int accumulate) {
  std::vector<std::vector<float>> of_replica;
  for (int v = 0; v < replicas; ++v) {
    std::vector<float> sum = values_of(step, v, 0);
    for (int micro = 1; micro < accumulate; ++micro) {
      const std::vector<float> next = values_of(step, v, micro);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += next[i];
    }
    if (accumulate > 1) sum[0] *= 1.0f / static_cast<float>(accumulate);
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

/// Parameters whose gradients, and whose loss, are what was loaded.
struct Model {
  std::vector<NamedTensor> parameters;

  Model() {
    for (size_t p = 0; p < std::size(sizes); ++p)
      parameters.push_back({concat("p", p), zeros({sizes[p]}).set_requires_grad()});
  }
  Tensor loss(const Tensor& values) const {
    const Tensor y = empty({});
    copy(values.slice(0, 1), y);
    std::vector<Tensor> inputs;
    for (const NamedTensor& parameter : parameters) inputs.push_back(parameter.tensor);
    return record("given", y, inputs, [values](const Tensor&) -> Gradients {
      Gradients gradients;
      int64_t begin = 1;
      for (const int64_t size : sizes) {
        gradients.push_back(values.slice(begin, begin + size));
        begin += size;
      }
      return gradients;
    });
  }
};

struct Setting {
  int ranks = 1;
  bool is_recorded = false;
  bool by_owners = false;
  DataParallel::Options options;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.options.replicas << " replicas on " << setting.ranks << " ranks, accumulate "
             << setting.options.accumulate << ", " << name(setting.options.transport) << ", "
             << name(setting.options.execution) << (setting.by_owners ? ", step()" : ", wait()")
             << (setting.is_recorded ? ", recorded" : "");
}

std::vector<float> numbers(const Tensor& tensor) {
  std::vector<float> values;
  for (const double value : to_doubles(tensor)) values.push_back(static_cast<float>(value));
  return values;
}

/// The values after each step, of one rank.
using Outcome = std::vector<std::vector<float>>;

/// Checks losses and gradients of a run against the definition.
Outcome run(const Setting& setting, Communicator& communicator, const Stream& stream) {
  const int accumulate = setting.options.accumulate;
  const Model model;
  ParameterSpace space(model.parameters);
  DataParallel ddp(space, World(communicator.shared_from_this()), setting.options);
  Momentum optimizer(space);
  std::vector<Tensor> given;
  const auto size = static_cast<int64_t>(values_of(0, 0, 0).size());
  const std::vector<int> replicas = ddp.replicas();
  for (size_t i = 0; i < replicas.size() * static_cast<size_t>(accumulate); ++i)
    given.push_back(empty({size}));
  const auto enqueue = [&] {
    for (const Tensor& values : given) ddp.backward(model.loss(values));
    if (setting.by_owners) return ddp.update(optimizer, 1.0);
    ddp.finish();
    optimizer.update(measure_gradient_norm(space, 1.0).factor);
  };
  std::unique_ptr<Graph> graph;
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < given.size(); ++i) {
      const int replica = replicas[i / static_cast<size_t>(accumulate)];
      copy(from_values(values_of(step, replica, static_cast<int>(i) % accumulate), {size}), given[i]);
    }
    if (step == 1 && setting.is_recorded) graph = std::make_unique<Graph>(stream, enqueue);
    optimizer.prepare(0.1);
    graph ? ddp.replay(*graph) : enqueue();
    std::vector<float> results = numbers(ddp.mean_loss());
    if (setting.by_owners) {
      EXPECT_THROW(model.parameters[0].tensor.grad(), Error);
      ddp.gather_gradients();
    }
    for (const NamedTensor& parameter : model.parameters)
      for (const float value : numbers(parameter.tensor.grad())) results.push_back(value);
    ddp.check();
    EXPECT_EQ(results, reference_step(step, setting.options.replicas, accumulate))
        << setting << ", step " << step;
    outcome.push_back(numbers(space.values()));
  }
  ddp.gather_states(optimizer);
  if (communicator.rank() == 0) outcome.push_back(numbers(optimizer.states()[0].flat));
  return outcome;
}

/// Runs it on all ranks; values and states are those of one rank that updates everything.
void expect_outcome(const Setting& setting, const Outcome& expected) {
  run_gpu_ranks(setting.ranks, [&](Communicator& communicator, const Stream& stream) {
    Outcome outcome = run(setting, communicator, stream);
    if (communicator.rank() > 0) outcome.push_back(expected.back());
    ASSERT_EQ(outcome, expected) << setting;
  });
}

Outcome of_one_rank(int replicas, int accumulate) {
  Outcome outcome;
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream& stream) {
    outcome = run({.options = {.replicas = replicas, .accumulate = accumulate}}, communicator, stream);
  });
  return outcome;
}

class GpuDataParallel : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPU(); }
};

TEST_F(GpuDataParallel, LossesGradientsAndUpdatesAreThoseOfTheDefinition) {
  for (const int replicas : {1, 3, 7})
    for (const int accumulate : {1, 3}) {
      const Outcome expected = of_one_rank(replicas, accumulate);
      for (int ranks = 1; ranks <= std::min(replicas, most_ranks); ++ranks)
        for (const Transport transport : transports_for(ranks))
          for (const Execution execution : {Execution::ranges, Execution::interleaved})
            expect_outcome({.ranks = ranks,
                            .by_owners = (accumulate == 3) == (execution == Execution::ranges),
                            .options = {.replicas = replicas,
                                        .accumulate = accumulate,
                                        .execution = execution,
                                        .bucket_bytes = 33000,
                                        .transport = transport}},
                           expected);
    }
}

TEST_F(GpuDataParallel, ARecordedStepGivesTheSameBitsInEveryOrderThatItsEventsAllow) {
  const Outcome expected = of_one_rank(4, 1);
  for_each_schedule([&] {
    for (int ranks = 1; ranks <= most_ranks; ++ranks)
      for (const Transport transport : transports_for(ranks))
        for (const Execution execution : {Execution::ranges, Execution::interleaved})
          if (transport != Transport::staged)
            expect_outcome({.ranks = ranks,
                            .is_recorded = true,
                            .by_owners = ranks != 2,
                            .options = {.replicas = 4,
                                        .execution = execution,
                                        .bucket_bytes = 0,
                                        .transport = transport}},
                           expected);
  });
}

TEST_F(GpuDataParallel, RankZerosValuesReachAllAndCopiesFollowUpdates) {
  for (const Transport transport : transports_for(2))
    run_gpu_ranks(2, [&](Communicator& communicator, const Stream&) {
      const Model model;
      for (const NamedTensor& parameter : model.parameters) fill(parameter.tensor, 1.0 + communicator.rank());
      ParameterSpace space(model.parameters);
      DataParallel ddp(space, World(communicator.shared_from_this()), {.transport = transport});
      for (const NamedTensor& parameter : model.parameters)
        for (const float value : numbers(parameter.tensor)) ASSERT_EQ(value, 1.0f);
      space.set_precision(DType::bf16);
      Momentum optimizer(space);
      ddp.backward(model.loss(full({static_cast<int64_t>(values_of(0, 0, 0).size())}, 1.0)));
      ddp.step(optimizer, 0.25);
      EXPECT_EQ(numbers(space.copies()), numbers(convert(space.values(), DType::bf16)));
      EXPECT_EQ(numbers(model.parameters[2].tensor)[0], 0.75f);
    });
}

TEST_F(GpuDataParallel, AnUnusedParameterIsNamed) {
  run_gpu_ranks(1, [&](Communicator& communicator, const Stream&) {
    const Model model;
    std::vector<NamedTensor> parameters = model.parameters;
    parameters.push_back({"decoder.forgotten", zeros({4}).set_requires_grad()});
    ParameterSpace space(parameters);
    DataParallel ddp(space, World(communicator.shared_from_this()), {});
    const Tensor values = full({static_cast<int64_t>(values_of(0, 0, 0).size())}, 1.0);
    try {
      ddp.backward(model.loss(values));
      FAIL() << "accepted";
    } catch (const Error& failure) {
      EXPECT_NE(std::string(failure.what()).find("decoder.forgotten"), std::string::npos) << failure.what();
    }
  });
}

}  // namespace
}  // namespace lockstep
