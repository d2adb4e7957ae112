// SPDX-License-Identifier: Apache-2.0
// What is easily forgotten in a model of one's own is an error that names it.
#include <atomic>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/world.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/layers.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operators.h"
#include "support/user_error.h"

namespace lockstep::forgetting_test {
namespace {

constexpr const char* no_error = "(nothing was thrown)";

Tensor some_inputs() {
  const Tensor x = empty({4, 3});
  fill_uniform(x, -1.0, 1.0, 1, 2);
  return x;
}

/// A model whose second layer is not registered.
class ForgetsALayer : public Module {
 public:
  Tensor operator()(const Tensor& x) const { return last_(first_(x)); }

 private:
  Linear& first_ = add_part<Linear>("first", 3, 5);
  Linear last_{5, 1};
};

class HasAScale : public Module {
 public:
  explicit HasAScale(const Tensor& scale) : scale_(scale) {}
  Tensor operator()(const Tensor& x) const { return layer_(x) * scale_; }

 private:
  Linear& layer_ = add_part<Linear>("layer", 3, 2);
  Tensor scale_;
};

class Nested : public Module {
 public:
  Tensor operator()(const Tensor& x) const { return inner_(x); }

 private:
  /// Keeps a part that this module does not own.
  class Inner : public Module {
   public:
    Inner() {
      auto part = std::make_unique<Linear>(3, 2);
      add_part("head", *part);
    }
    Tensor operator()(const Tensor& x) const { return x; }
  };
  Inner& inner_ = add_part<Inner>("inner");
};

template <class Model>
std::string error_of_training(const Model& model) {
  return user_error([&] {
    const World world = World::alone();
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = 1});
    ddp.backward(mean(model(some_inputs())));
    ddp.wait();
  });
}

TEST(Forgetting, ALayerThatIsNoPartIsNamed) {
  expect_contains(error_of_training(ForgetsALayer()),
                  {"the parameter Linear.", " by the operation linear, and no ParameterSpace holds it",
                   "add its module by add_part()"});
}

TEST(Forgetting, IsAlsoFoundWithoutDataParallel) {
  const ForgetsALayer model;
  ParameterSpace parameters(model);
  expect_contains(user_error([&] { backward(mean(model(some_inputs()))); }), {"the parameter Linear."});
}

TEST(Forgetting, ATensorThatIsNoParameterIsNamed) {
  const HasAScale model(full({2}, 1.0).set_requires_grad());
  expect_contains(error_of_training(model), {"the loss reads a leaf [2] by the operation multiply",
                                             "make it by add_parameter(), or, if it is not to be trained,"});
  EXPECT_EQ(error_of_training(HasAScale(full({2}, 1.0))), no_error);
}

TEST(Forgetting, AGradientOfTheInputsIsAllowedInALoopOfOnesOwn) {
  const HasAScale model(full({2}, 1.0));
  ParameterSpace parameters(model);
  Tensor x = some_inputs();
  x.set_requires_grad();
  backward(mean(model(x)));
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST(Forgetting, ADestroyedPartIsNamed) {
  expect_contains(error_of_training(Nested()),
                  {"the part \"inner.head\" was destroyed", "make it a member", "add_part<Type>(\"head\""});
}

/// Trains one matrix from `values` and returns the error.
std::string error_of_matrix(const InitialValues& values) {
  class OneMatrix : public Module {
   public:
    explicit OneMatrix(const InitialValues& of) : weight_(add_parameter("weight", {1, 3}, of)) {}
    Tensor operator()(const Tensor& x) const { return linear(x, weight_); }

   private:
    Tensor weight_;
  };
  return error_of_training(OneMatrix(values));
}

TEST(Forgetting, AMatrixOfZerosIsNamedUnlessZerosAreMeant) {
  const InitialValues forgotten{.fill = [](const Tensor& part, int64_t) { fill(part, 0.0); }, .name = "mine"};
  expect_contains(error_of_matrix(forgotten), {"the matrix weight [1, 3] is all zeros at the first step"});
  EXPECT_EQ(error_of_matrix(constant_values(0.0)), no_error);
  EXPECT_EQ(error_of_matrix(constant_values(0.5)), no_error);

  Tensor weight = zeros({1, 3}).set_requires_grad();
  const auto step = [&] {
    ParameterSpace parameters({{"by_hand", weight}});
    Sgd optimizer(parameters, {});
    backward(mean(linear(some_inputs(), weight)));
    optimizer.step(0.1);
  };
  expect_contains(user_error(step), {"the matrix by_hand [1, 3] is all zeros"});
  fill(weight, 0.1);
  step();
}

// Each rank keeps a part of the matrix. All ranks get the error, so none waits for another.
TEST(Forgetting, AMatrixOfZerosIsFoundByAllRanksThatShareIt) {
  for (const Shape& shape : {Shape{64, 64}, Shape{128, 128}}) {
    std::atomic<int> refusals = 0;
    run_ranks(2, [&](Communicator& ranks) {
      Tensor matrix = zeros(shape), other = full(shape, 0.1);
      ParameterSpace space({{"matrix", matrix.set_requires_grad()}, {"other", other.set_requires_grad()}});
      DataParallel ddp(space, World(ranks.shared_from_this()), {.replicas = 2, .shard = Shard::full});
      Sgd optimizer(space, {});
      const std::string error = user_error([&] {
        ddp.begin_step();
        const Tensor x = full({2, shape[1]}, 1.0);
        for (size_t i = 0; i < ddp.setup.micro_batches.size(); ++i)
          ddp.backward(mean(add(linear(x, matrix), linear(x, other))));
        ddp.step(optimizer, 0.1);
      });
      if (error.find("the matrix matrix " + concat(shape) + " is all zeros") != std::string::npos) ++refusals;
    });
    EXPECT_EQ(refusals, 2) << shape;
  }
}

TEST(Forgetting, TheLeavesOfAnotherSpaceAreConstants) {
  const Mlp generator({3, 2}), judge({2, 1});
  ParameterSpace of_generator(generator), of_judge(judge);
  DataParallel ddp(of_generator, World::alone(), {.replicas = 1});
  const DataParallel other(of_judge, World::alone(), {.replicas = 1});
  ddp.backward(mean(judge(generator(some_inputs()))));
  ddp.wait();
  EXPECT_TRUE(static_cast<bool>(generator.parameters()[0].tensor.grad()));
  EXPECT_FALSE(static_cast<bool>(judge.parameters()[0].tensor.grad()));
}

TEST(Forgetting, ATeacherThatIsFrozenIsNotForgotten) {
  const Mlp student({3, 1}), teacher({3, 1});
  for (const auto& [name, tensor] : teacher.parameters()) Tensor(tensor).set_requires_grad(false);
  ParameterSpace parameters(student);
  DataParallel ddp(parameters, World::alone(), {.replicas = 1});
  const Tensor x = some_inputs();
  ddp.backward(mean_squared_error(student(x), teacher(x)));
  ddp.wait();
}

TEST(Forgetting, ABackwardWithinAGradientHasLeavesOfItsOwn) {
  const Mlp model({3, 1});
  ParameterSpace parameters(model);
  DataParallel ddp(parameters, World::alone(), {.replicas = 1});
  const Tensor y = model(some_inputs());
  const Tensor twice = record("twice", scale(y, 2.0), {y}, [](const Tensor& dy) -> Gradients {
    const EnableGrad enable_grad;
    Tensor own = full(dy.shape(), 2.0).set_requires_grad();
    backward(sum(multiply(own, own)));
    return {multiply(dy, scale(own.grad(), 0.5))};
  });
  ddp.backward(mean(twice));
  ddp.wait();
}

TEST(Forgetting, AParameterWithoutInitialValuesIsNamed) {
  class Bare : public Module {
   public:
    Bare() { add_parameter("scale", {3}, {}); }
  };
  expect_contains(error_of([] { Bare(); }), {"the parameter Bare.scale [3] has no initial values"});
}

TEST(Forgetting, NormsKeepTheirOnes) {
  class Normed : public Module {
   public:
    Tensor operator()(const Tensor& x) const { return norm_(layer_(x)); }

   private:
    Linear& layer_ = add_part<Linear>("layer", 3, 4);
    LayerNorm& norm_ = add_part<LayerNorm>("norm", 4);
  };
  const Normed model;
  initialize(model.parameters(), 5);
  const ParameterSpace parameters(model, {.seed = 6});
  EXPECT_EQ(to_doubles(model.parameters()[2].tensor), std::vector<double>(4, 1.0));
  EXPECT_EQ(to_doubles(model.parameters()[3].tensor), std::vector<double>(4, 0.0));
}

TEST(InitialValues, ComeFromTheSeedOfTheSpaceAndThePlace) {
  const auto values_with = [](uint64_t seed) {
    const Mlp model({3, 3, 3});
    const ParameterSpace parameters(model, {.seed = seed});
    std::vector<std::vector<double>> values;
    for (const auto& [name, tensor] : model.parameters()) values.push_back(to_doubles(tensor));
    return values;
  };
  const auto seven = values_with(7);
  EXPECT_EQ(seven, values_with(7));
  EXPECT_NE(seven[0], values_with(8)[0]);
  EXPECT_NE(seven[0], seven[2]);  // two layers of one shape
  const Mlp alone({3, 3, 3});
  const auto listed = alone.parameters();
  EXPECT_NE(to_doubles(listed[0].tensor), to_doubles(listed[2].tensor));
}

TEST(InitialValues, ASecondSpaceDrawsWithItsOwnSeed) {
  const Mlp model({3, 3}), fresh({3, 3});
  { const ParameterSpace first(model, {.seed = 1}); }
  const ParameterSpace second(model, {.seed = 2}), expected(fresh, {.seed = 2});
  EXPECT_EQ(to_doubles(model.parameters()[0].tensor), to_doubles(fresh.parameters()[0].tensor));
}

TEST(InitialValues, LaterOnesHaveTheSeedAndThePlaceOfTheSpace) {
  const auto values = [] {
    const Mlp model({3, 3});
    const ParameterSpace parameters(model, {.seed = 4});
    model.parameters()[0].tensor.initialize(normal_values(0.0, 1.0));
    return to_doubles(model.parameters()[0].tensor);
  };
  EXPECT_EQ(values(), values());
}

TEST(InitialValues, ATiedTensorKeepsItsFirstPlace) {
  const Mlp model({3, 3}), other({3, 3});
  const auto tied = [](const Mlp& of) {
    std::vector<NamedTensor> list = of.parameters();
    list.push_back({"again", list[0].tensor});
    return list;
  };
  const ParameterSpace parameters(tied(model), {.seed = 3});
  initialize(tied(other), 3);
  EXPECT_EQ(to_doubles(model.parameters()[0].tensor), to_doubles(other.parameters()[0].tensor));
}

TEST(Evaluation, HasTheSameBitsOnAnyNumberOfRanks) {
  const SyntheticRegression data(50, 3);
  const auto evaluate_on = [&](int ranks, Shard shard) {
    std::vector<double> results(static_cast<size_t>(ranks));
    run_ranks(ranks, [&](Communicator& communicator) {
      const Mlp model({3, 4, 1});
      ParameterSpace parameters(model, {.seed = 1});
      DataParallel ddp(parameters, World(communicator.shared_from_this()), {.replicas = 4, .shard = shard});
      results[static_cast<size_t>(communicator.rank())] = ddp.evaluate(data, 8, [&](const Batch& batch) {
        return mean_squared_error(model(batch.inputs), batch.targets);
      });
    });
    return results;
  };
  const double alone = evaluate_on(1, Shard::none)[0];
  EXPECT_GT(alone, 0.0);
  EXPECT_EQ(evaluate_on(2, Shard::none), std::vector<double>(2, alone));
  EXPECT_EQ(evaluate_on(3, Shard::full), std::vector<double>(3, alone));
}

TEST(LoaderOfDataParallel, LoadsTheMicroBatchesOfThisRank) {
  const auto data = std::make_shared<SyntheticRegression>(64, 3);
  const Mlp model({3, 1});
  ParameterSpace parameters(model);
  const DataParallel ddp(parameters, World::alone(), {.replicas = 2, .accumulate = 2});
  Loader loader = ddp.loader(data, {.batch_size = 8});
  const Step step = loader.next();
  ASSERT_EQ(step.batches.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(step.batches[i].replica, static_cast<int64_t>(i / 2));
    EXPECT_EQ(step.batches[i].samples, 4);
  }
}

}  // namespace
}  // namespace lockstep::forgetting_test
