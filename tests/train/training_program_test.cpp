// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/training_program.h"

#include <gtest/gtest.h>

#include "lockstep/nn/layers.h"
#include "lockstep/tensor/create.h"
#include "tests/support/temporary_directory.h"

namespace lockstep::training_program_test {
namespace {

/// A small regression.
class OwnTask : public TrainingTask {
 public:
  explicit OwnTask(const Job& job) : job_(job) {}
  std::vector<NamedTensor> parameters() const override { return model_.parameters(); }
  std::shared_ptr<const Dataset> training_data() const override {
    return std::make_shared<SyntheticRegression>(64, 4);
  }
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context&) const override {
    return mean_squared_error(model_(inputs), targets);
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override {
    return make_adamw(space, job_.optimizer);
  }

 private:
  const Job& job_;
  Mlp model_{{4, 8, 1}};
};

/// The exit code of a run, and the values of the first layer before and after it.
struct Outcome {
  int code = 0;
  std::vector<double> before, after;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "own");
  Outcome outcome;
  class Borrowed : public OwnTask {
   public:
    Borrowed(const Job& job, Outcome& of) : OwnTask(job), outcome_(of) {}
    ~Borrowed() override { outcome_.after = to_doubles(parameters()[0].tensor); }
    std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override {
      outcome_.before = to_doubles(parameters()[0].tensor);
      return OwnTask::make_optimizer(space);
    }

   private:
    Outcome& outcome_;
  };
  outcome.code = run_training_program(
      static_cast<int>(arguments.size()), arguments.data(),
      {.defaults = {{"train.epochs", "1"}, {"train.batch_size", "16"}, {"train.learning_rate", "1e-2"}},
       .arguments = {"FILE"},
       .make_task = [&](const TaskInput& input) {
         EXPECT_EQ(input.arguments, std::vector<std::string>{"rows"});
         return std::make_unique<Borrowed>(input.job, outcome);
       }});
  return outcome;
}

TEST(TrainingProgram, TrainsAndFreezesAsTheKeysSay) {
  const TemporaryDirectory directory;
  const std::string log = "log.dir=" + (directory / "run"), other = "log.dir=" + (directory / "other");
  const Outcome trained = run({"rows", log.c_str(), "train.device=cpu"});
  EXPECT_EQ(trained.code, 0);
  EXPECT_NE(trained.before, trained.after);
  const Outcome frozen = run({"rows", other.c_str(), "train.device=cpu", "train.freeze=layers.0.*"});
  EXPECT_EQ(frozen.code, 0);
  EXPECT_EQ(frozen.before, frozen.after);
}

TEST(TrainingProgram, RefusesWhatHasNoEffect) {
  const TemporaryDirectory directory;
  const std::string log = "log.dir=" + (directory / "run");
  EXPECT_EQ(run({"rows", log.c_str(), "model.n_layer=3"}).code, exit_usage);
  EXPECT_EQ(run({"rows", log.c_str(), "train.freeze=no_such.*", "train.device=cpu"}).code, exit_usage);
  EXPECT_EQ(run({log.c_str()}).code, exit_usage);
  EXPECT_EQ(run({"rows", "more", log.c_str()}).code, exit_usage);
  EXPECT_EQ(run({"rows", "--plan"}).code, exit_usage);
}

}  // namespace
}  // namespace lockstep::training_program_test
