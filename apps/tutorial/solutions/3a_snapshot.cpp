// SPDX-License-Identifier: Apache-2.0
// Exercise 3a, the snapshot. This run resumes from a snapshot if one exists. Write the snapshot: everything
// that the run needs to continue as if it was never interrupted, and nothing else. check_exercise stops the
// run after two epochs and starts it again for two more. See docs/tutorial/exercises.md, 3a.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr const char* snapshot_path = "snapshot.safetensors";

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=2");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {.momentum = 0.9});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"]});

    std::vector<NamedTensor> state = model.parameters();
    // blank<void>("append what the optimizer remembers to state")
    for (const NamedTensor& velocity : optimizer.state()) state.push_back(velocity);
    int epochs_run = 0;
    const bool has_snapshot = world.is_first() && std::filesystem::exists(snapshot_path);
    const std::string read = has_snapshot ? to_safetensors(load_safetensors(snapshot_path)) : "";
    if (const std::string bytes = world.communicator().broadcast_text(read, 0); !bytes.empty()) {
      const SafeTensors snapshot = from_safetensors(bytes, snapshot_path);
      restore_tensors(snapshot.tensors, state, snapshot_path);
      epochs_run = std::stoi(snapshot.metadata.at("epochs_run"));
      loader.seek(epochs_run * loader.steps_per_epoch());
    }

    for (int epoch = epochs_run; epoch < options["total_epochs"]; ++epoch) {
      for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
        const Step step = loader.next();
        ddp.backward(mean_squared_error(model(step.batches[0].inputs), step.batches[0].targets));
        const float loss = ddp.wait();
        optimizer.step(learning_rate);
        if (world.is_first()) report_step(step.index + 1, loss);
      }
      if (!world.is_first()) continue;
      std::map<std::string, std::string> metadata;
      // blank<std::string>("how many epochs are over, as text"): concat(epoch + 1)
      const std::string epochs = concat(epoch + 1);
      metadata["epochs_run"] = epochs;
      // blank<void>("write state and metadata to snapshot_path")
      write_file(snapshot_path, to_safetensors({.tensors = state, .metadata = metadata}));
    }
    return 0;
  });
}
