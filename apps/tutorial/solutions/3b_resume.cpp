// SPDX-License-Identifier: Apache-2.0
// Exercise 3b, resume. Rank 0 reads the newest snapshot. Make every rank resume from it: restore the values,
// the velocities, the count of epochs and the position in the data. check_exercise stops the run after two
// epochs and starts it again for two more. See docs/tutorial/exercises.md, 3b.
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
    for (const NamedTensor& velocity : optimizer.state()) state.push_back(velocity);
    int epochs_run = 0;
    const bool has_snapshot = world.is_first() && std::filesystem::exists(snapshot_path);
    const std::string read = has_snapshot ? to_safetensors(load_safetensors(snapshot_path)) : "";
    // blank<std::string>("what rank 0 has read, on every rank"): world.communicator().broadcast_text(read, 0)
    const std::string bytes = world.communicator().broadcast_text(read, 0);
    if (!bytes.empty()) {
      const SafeTensors snapshot = from_safetensors(bytes, snapshot_path);
      // blank<void>("copy the snapshot's tensors into state")
      restore_tensors(snapshot.tensors, state, snapshot_path);
      // blank<int>("how many epochs are over"): std::stoi(snapshot.metadata.at("epochs_run"))
      epochs_run = std::stoi(snapshot.metadata.at("epochs_run"));
      // blank<void>("put the loader where the run was")
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
      const std::string epochs = concat(epoch + 1);
      write_file(snapshot_path, to_safetensors({.tensors = state, .metadata = {{"epochs_run", epochs}}}));
    }
    return 0;
  });
}
