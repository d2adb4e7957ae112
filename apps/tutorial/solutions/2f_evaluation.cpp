// SPDX-License-Identifier: Apache-2.0
// Exercise 2f, evaluation over ranks. After every epoch the ranks share 500 samples that are not trained on.
// Rank r takes samples r, r + N, ..., in batches of 32. The last batch is short. The evaluation loss is the
// mean over the samples. A mean over batches or ranks would give the samples of short ones too much weight.
// See docs/tutorial/exercises.md, 2f.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

/// The evaluation result of some samples.
struct Part {
  double sum = 0.0;    // of the samples' losses
  double count = 0.0;  // number of samples
};

/// Returns the mean loss of all samples of `data` on every rank.
double evaluate(const World& world, const Mlp& model, const Dataset& data, int64_t batch_size) {
  const NoGrad no_grad;
  std::vector<int64_t> mine;
  for (int64_t sample = world.rank(); sample < data.size(); sample += world.size()) mine.push_back(sample);
  Part part;
  const auto share = static_cast<int64_t>(mine.size());
  for (int64_t begin = 0; begin < share; begin += batch_size) {
    const auto size = static_cast<size_t>(std::min(batch_size, share - begin));
    const Batch batch = collect(data, {mine.data() + begin, size}, cpu_stream());
    const double loss = item(mean_squared_error(model(batch.inputs), batch.targets));
    // blank<double>("the sum of the losses of this batch's samples"): loss * static_cast<double>(batch.samples)
    part.sum += loss * static_cast<double>(batch.samples);
    // blank<double>("how many samples that is"): static_cast<double>(batch.samples)
    part.count += static_cast<double>(batch.samples);
  }
  std::vector<Part> parts(static_cast<size_t>(world.size()));
  // blank<void>("gather the parts of all ranks into parts")
  world.communicator().all_gather(&part, sizeof part, parts.data());
  Part whole;
  for (const Part& one : parts) {
    whole.sum += one.sum;
    whole.count += one.count;
  }
  // blank<double>("the mean loss of a sample"): whole.sum / whole.count
  return whole.sum / whole.count;
}

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=3 --batch_size=32 --ranks=3");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const SyntheticRegression unseen(500, 20, /*seed=*/1);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {});
    Loader loader(
        data,
        {.replicas = world.size(), .local_replicas = {world.rank()}, .batch_size = options["--batch_size"]});

    for (int64_t i = 1; i <= options["total_epochs"] * loader.steps_per_epoch(); ++i) {
      const Step step = loader.next();
      const Batch& batch = step.batches[0];
      ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
      const float loss = ddp.wait();
      optimizer.step(learning_rate);
      if (world.is_first()) report_step(i, loss);
      if (i % loader.steps_per_epoch() != 0) continue;
      const double evaluation = evaluate(world, model, unseen, options["--batch_size"]);
      if (world.is_first()) report_evaluation(i, static_cast<float>(evaluation));
    }
    return 0;
  });
}
