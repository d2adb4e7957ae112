// SPDX-License-Identifier: Apache-2.0
// Effects of sharding other than bits: the ranks that keep data, and the errors. data_parallel_gate_test.cpp
// compares the bits.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/core/memory.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/tensor/autograd.h"
#include "tests/dist/momentum.h"
#include "tests/dist/tiny_model.h"
#include "tests/support/user_error.h"

namespace lockstep::sharded_data_parallel_test {
namespace {

constexpr Shard stages[] = {Shard::none, Shard::optimizer, Shard::gradients, Shard::full};

void run_step(DataParallel& ddp, Optimizer& optimizer, const TinyModel& model, int step) {
  ddp.begin_step();
  for (const MicroBatch& one : ddp.setup.micro_batches)
    ddp.backward(model.loss(batch_of(step, one.replica, one.index)));
  ddp.step(optimizer, learning_rate, max_norm);
}

std::vector<float> all_values(DataParallel& ddp, const ParameterSpace& space) {
  std::vector<float> all;
  for (int unit = 0; unit < static_cast<int>(space.layout.units().size()); ++unit)
    for (const float value : values_of(ddp.values.gather(unit))) all.push_back(value);
  return all;
}

TEST(Sharded, FrozenParametersAreBroughtOnceAndKeepTheirValues) {
  for (const Shard stage : stages)
    for (const bool by_owners : {false, true})
      run_ranks(3, [&](Communicator& ranks) {
        TinyModel model(static_cast<uint64_t>(ranks.rank()));
        model.wide.set_requires_grad(false);
        ParameterSpace space(model.parameters());
        EXPECT_LT(space.layout.trainable_elements(), space.layout.elements());
        DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = stage});
        Momentum optimizer(space);
        ddp.begin_step();
        ddp.backward(model.loss(1));
        if (by_owners || ddp.setup.sharding.cuts_gradients())
          ddp.step(optimizer, learning_rate);
        else
          ddp.wait();
        const bool is_updated = by_owners || ddp.setup.sharding.cuts_gradients();
        ddp.together([&] {
          EXPECT_EQ(values_of(model.wide), values_of(TinyModel().wide)) << name(stage);
          EXPECT_EQ(values_of(model.out) == values_of(TinyModel().out), !is_updated) << name(stage);
        });
      });
}

/// A communicator that shares memory only for the first `requests` requests.
class Stingy : public LocalCommunicator {
 public:
  Stingy(std::shared_ptr<Group> group, int rank, int requests)
      : LocalCommunicator(std::move(group), rank), requests_(requests) {}
  std::shared_ptr<SharedMemory> share(int64_t bytes, bool is_common) override {
    ++asked;
    return requests_-- > 0 ? LocalCommunicator::share(bytes, is_common) : nullptr;
  }
  int asked = 0;

 private:
  int requests_;
};

TEST(Sharded, WhereSharedMemoryEndsMessagesBegin) {
  std::vector<float> expected;
  for (const Shard stage : stages)
    for (const DType precision : {DType::f32, DType::bf16}) {
      if (precision == DType::bf16 && stage == Shard::none) continue;
      std::vector<float> first;
      int needed = 1000;  // a barrier, slots, values, a step summary, a state; leaves and copies
      for (int requests = 0; requests <= needed; ++requests) {
        const auto group = LocalCommunicator::make_group(2);
        run_ranks(2, [&](Communicator& launched) {
          const auto stingy = std::make_shared<Stingy>(group, launched.rank(), requests);
          const TinyModel model;
          ParameterSpace space(model.parameters());
          space.set_precision(precision);
          DataParallel ddp(space, World(stingy), {.replicas = 3, .shard = stage});
          Momentum optimizer(space);
          for (int step = 0; step < steps; ++step) run_step(ddp, optimizer, model, step);
          EXPECT_STREQ(ddp.setup.transport, requests < 2 ? "as messages" : "in shared memory");
          std::vector<float> outcome = all_values(ddp, space);
          if (launched.rank() > 0) return;
          for (const Range& range : ddp.setup.sharding.updates[0])
            for (const float value : values_of(optimizer.states()[0].flat.part(range)))
              outcome.push_back(value);
          if (requests == 0) first = outcome;
          EXPECT_EQ(outcome, first) << requests << " blocks of shared memory, " << name(stage);
          if (requests >= 2) needed = stingy->asked;  // with fewer than two, later requests are not made
        });
      }
      EXPECT_GE(needed, 4);
      EXPECT_LT(needed, 30);
      const size_t count = ParameterSpace(TinyModel().parameters()).layout.elements();
      first.resize(count);
      if (precision == DType::bf16) continue;
      if (expected.empty()) expected = first;
      EXPECT_EQ(first, expected) << name(stage);
    }
}

TEST(Sharded, WhatNobodyHasWholeIsRefused) {
  for (const Shard stage : {Shard::gradients, Shard::full})
    run_ranks(2, [&](Communicator& ranks) {
      const TinyModel model, same;
      ParameterSpace space(model.parameters()), of_same(same.parameters());
      DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = stage});
      DataParallel whole(of_same, World(ranks.shared_from_this()), {});
      Momentum optimizer(space), other(of_same);
      run_step(whole, other, same, 0);
      ddp.begin_step();
      ddp.backward(model.loss(batch_of(0, ranks.rank(), 0)));
      for (const std::string& refusal : {error_of([&] { ddp.wait(); }), error_of([&] { ddp.finish(); })})
        expect_contains(refusal, {"shard = gradients or full", "DataParallel::step()"});
      ddp.step(optimizer, learning_rate, max_norm);
      EXPECT_EQ(all_values(ddp, space), values_of(of_same.values()))
          << "the refusal must not change the step";
      expect_contains(error_of([&] { ddp.gather_gradients(); }),
                      {concat("shard = ", name(stage)), "no rank has all gradients"});
      EXPECT_THROW(model.out.grad(), Error);
      EXPECT_THROW(optimizer.state(), Error);
      EXPECT_THROW(optimizer.step(learning_rate), Error);
    });
}

TEST(Sharded, AModelOfWhichRanksKeepPartsIsReadWhereTheyRunTogether) {
  run_ranks(2, [](Communicator& ranks) {
    const TinyModel model;
    ParameterSpace space(model.parameters());
    {
      DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = Shard::full});
      Momentum optimizer(space);
      expect_contains(error_of([&] { model.loss(1); }),
                      {"DataParallel::begin_step() first", "on every rank"});
      run_step(ddp, optimizer, model, 0);
      expect_contains(error_of([&] { model.loss(1); }), {"DataParallel::begin_step()"});
      ddp.together([&] { EXPECT_NO_THROW(model.loss(1)); });
      expect_contains(error_of([&] { to_doubles(model.out); }), {"DataParallel::begin_step()"});
    }
    expect_contains(error_of([&] { model.loss(1); }), {"DataParallel", "no longer exists"});
  });
}

TEST(Sharded, AnErrorOfWhatRanksRunTogetherReachesTheCallerAndEndsThePass) {
  run_ranks(2, [](Communicator& ranks) {
    const TinyModel model;
    ParameterSpace space(model.parameters());
    DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = Shard::full});
    const auto body = [&] {
      model.loss(1);
      expect(false, "no text was generated");
    };
    expect_contains(error_of([&] { ddp.together(body); }), {"no text was generated"});
    expect_contains(error_of([&] { model.loss(1); }), {"DataParallel::begin_step()"});
    ddp.together([&] { EXPECT_NO_THROW(model.loss(1)); });
  });
}

TEST(Sharded, AnOperationOnMoreUnitsThanThereAreBuffersIsRefused) {
  run_ranks(2, [](Communicator& ranks) {
    const TinyModel model;
    ParameterSpace space(model.parameters());
    DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = Shard::full});
    ddp.begin_step();
    // All four are read before the next kernel.
    for (const Tensor& tensor : {model.mix, model.weight, model.bias}) tensor.view();
    expect_contains(error_of([&] { model.out.view(); }), {"more than 3 units"});
  });
}

TEST(Sharded, PrecisionIsThatOfTheOperations) {
  run_ranks(2, [](Communicator& ranks) {
    const TinyModel model;
    ParameterSpace space(model.parameters());
    space.set_precision(DType::bf16);
    DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = Shard::full});
    ddp.together([&] {
      expect_contains(error_of([&] { model.out.view(); }),
                      {"reads a sharded parameter in f32", "computes in bf16"});
      EXPECT_NO_THROW(model.out.operand(DType::bf16));
    });
  });
}

/// Returns the loss of the layers, in forward or reversed order.
Tensor loss_through(std::vector<NamedTensor> layers, bool is_reversed) {
  if (is_reversed) std::ranges::reverse(layers);
  Tensor x = full({2, layers.front().tensor.shape()[1]}, 0.5);
  for (const NamedTensor& layer : layers) x = tanh(linear(x, layer.tensor));
  return mean(x);
}

TEST(Sharded, GradientsInAnotherOrderThanAtFirstAreRefused) {
  for (const auto& [stage, overlap] :
       {std::pair(Shard::gradients, false), {Shard::gradients, true}, {Shard::full, false}}) {
    const std::string refusal = error_of([&, stage = stage, overlap = overlap] {
      run_ranks(2, [&](Communicator& ranks) {
        std::vector<NamedTensor> layers;
        for (const char* name : {"a", "b", "c", "d"}) layers.push_back({name, parameter({16, 16})});
        for (const NamedTensor& layer : layers) fill(layer.tensor, 0.1);
        ParameterSpace space(layers);
        DataParallel ddp(space, World(ranks.shared_from_this()),
                         {.replicas = 6, .shard = stage, .overlap = overlap});
        ddp.begin_step();
        ddp.backward(loss_through(layers, false));
        ddp.backward(loss_through(layers, false));
        ddp.backward(loss_through(layers, true));
      });
    });
    expect_contains(refusal, {"another order than the first backward"});
  }
}

TEST(Sharded, CopiesFollowValuesThatWereReadFromElsewhere) {
  for (const Shard stage : stages)
    run_ranks(2, [&](Communicator& ranks) {
      const TinyModel model;
      ParameterSpace space(model.parameters());
      space.set_precision(DType::bf16);
      DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = stage});
      fill(space.values().memory(), 0.3);  // each rank fills the elements that it keeps
      ddp.values.refresh_copies();
      ddp.together([&] {
        for (const NamedTensor& named : model.parameters()) {
          const Tensor seen = empty(named.tensor.shape(), DType::bf16);
          launch(cpu_stream(), Convert{.x = named.tensor.operand(DType::bf16), .y = seen.view()});
          for (const double value : to_doubles(seen)) ASSERT_EQ(value, 0.30078125) << name(stage);
        }
      });
    });
}

/// A communicator that remembers the largest gather.
class Measuring : public LocalCommunicator {
 public:
  using LocalCommunicator::LocalCommunicator;
  int64_t most_bytes = 0;  ///< of one rank

 protected:
  void do_all_gather(const std::byte* mine, int64_t bytes, std::byte* all) override {
    most_bytes = std::max(most_bytes, bytes);
    LocalCommunicator::do_all_gather(mine, bytes, all);
  }
};

TEST(Sharded, TheRulesOfParametersAreComparedByHash) {
  const auto group = LocalCommunicator::make_group(3);
  for (const bool are_equal : {true, false})
    run_ranks(3, [&](Communicator& launched) {
      const int rank = launched.rank();
      const auto ranks = std::make_shared<Measuring>(group, rank);
      std::vector<NamedTensor> parameters;
      for (int i = 0; i < 300; ++i) {
        const double value = !are_equal && rank > 0 && i == 299 ? 0.25 : 0.5;
        parameters.push_back(
            {concat("layers.", i, ".weight"),
             Tensor::declare({8}, DType::f32, cpu_stream(), constant_values(value)).set_requires_grad()});
      }
      ParameterSpace space(parameters);
      DataParallel ddp(space, World(ranks), {.shard = Shard::full});
      EXPECT_LT(ranks->most_bytes, 2000) << "the rules have 10,000; the cores of a rank about 1,000";
      EXPECT_EQ(values_of(ddp.values.gather(0))[0], 0.5) << "rank 0's value counts";
    });
}

/// Returns the memory of four ranks together after one step. The unit is the bytes of the model's parameters.
std::map<std::string, double> memory_of(Shard stage) {
  constexpr int64_t width = 128, layers = 8;  // a layer is a unit of four blocks
  std::map<std::string, double> use;
  run_ranks(4, [&](Communicator& ranks) {
    std::vector<NamedTensor> parameters;
    for (int layer = 0; layer < layers; ++layer)
      parameters.push_back({concat("layers.", layer, ".weight"),
                            Tensor::declare({width, width}, DType::f32, cpu_stream(), constant_values(0.5))
                                .set_requires_grad()});
    ParameterSpace space(parameters);
    DataParallel ddp(space, World(ranks.shared_from_this()), {.shard = stage, .shared_memory = false});
    Momentum optimizer(space);
    ddp.begin_step();
    ddp.backward(loss_through(parameters, false));
    ddp.step(optimizer, learning_rate);
    ranks.barrier();
    if (ranks.rank() == 0)
      for (const MemoryUse& row : memory_table())
        use[row.label] = static_cast<double>(row.current_bytes) / (4 * width * width * layers);
    ranks.barrier();
  });
  return use;
}

TEST(Sharded, EachStageKeepsLess) {
  std::map<std::string, double> before = memory_of(Shard::none);
  EXPECT_NEAR(before["parameters"], 4.0, 0.01);
  EXPECT_NEAR(before["optimizer"], 4.0, 0.01);
  EXPECT_GT(before["gradients"], 4.0);
  std::map<std::string, double> use = memory_of(Shard::optimizer);
  EXPECT_NEAR(use["parameters"], 4.0, 0.01);
  EXPECT_NEAR(use["optimizer"], 1.0, 0.01);
  EXPECT_NEAR(use["gradients"], before["gradients"], 0.01);
  // Gradients: the owned ranges, plus two layers in progress on each rank, plus one layer's received
  // elements.
  use = memory_of(Shard::gradients);
  EXPECT_NEAR(use["parameters"], 4.0, 0.01);
  EXPECT_NEAR(use["optimizer"], 1.0, 0.01);
  EXPECT_NEAR(use["gradients"], 1.0 + 4 * 2.75 / 8, 0.05);
  const double gradients = use["gradients"];
  use = memory_of(Shard::full);
  EXPECT_NEAR(use["parameters"], 1.0, 0.01);
  EXPECT_NEAR(use["gathered values"], 4 * 3.0 / 8, 0.01);
  EXPECT_NEAR(use["optimizer"], 1.0, 0.01);
  EXPECT_NEAR(use["gradients"], gradients, 0.01);
}

}  // namespace
}  // namespace lockstep::sharded_data_parallel_test
