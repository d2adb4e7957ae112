// SPDX-License-Identifier: Apache-2.0
// Exercise 3c, another number of ranks. A run begins with one replica per rank, as in PyTorch. Two of its
// four machines fail. The run resumes on the other two, then on one. A step must stay the same: four batches.
// So the snapshot has to record the run's number of replicas, and a resumed run has to request this number.
// See docs/tutorial/exercises.md, 3c.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;
constexpr const char* snapshot_path = "snapshot.safetensors";

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const bool has_snapshot = world.is_first() && std::filesystem::exists(snapshot_path);
    const std::string read = has_snapshot ? to_safetensors(load_safetensors(snapshot_path)) : "";
    const std::string bytes = world.communicator().broadcast_text(read, 0);
    const SafeTensors snapshot = bytes.empty() ? SafeTensors{} : from_safetensors(bytes, snapshot_path);
    int replicas = world.size();
    // blank<int>("how many replicas the run has, as its snapshot says"): std::stoi(snapshot.metadata.at("replicas"))
    if (!bytes.empty()) replicas = std::stoi(snapshot.metadata.at("replicas"));

    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {.replicas = replicas});
    Sgd optimizer(parameters, {.momentum = 0.9});
    // blank<int>("how many shares the samples are cut into"): ddp.total_replicas()
    Loader loader(data, {.replicas = ddp.total_replicas(),
                         .local_replicas = ddp.replicas(),
                         .batch_size = options["--batch_size"]});
    std::vector<NamedTensor> state = model.parameters();
    for (const NamedTensor& velocity : optimizer.state()) state.push_back(velocity);
    int epochs_run = 0;
    if (!bytes.empty()) {
      restore_tensors(snapshot.tensors, state, snapshot_path);
      epochs_run = std::stoi(snapshot.metadata.at("epochs_run"));
      loader.seek(epochs_run * loader.steps_per_epoch());
    }

    for (int epoch = epochs_run; epoch < options["total_epochs"]; ++epoch) {
      for (int64_t i = 0; i < loader.steps_per_epoch(); ++i) {
        const Step step = loader.next();
        for (const Batch& batch : step.batches)
          ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
        const float loss = ddp.wait();
        optimizer.step(learning_rate);
        if (world.is_first()) report_step(step.index + 1, loss);
      }
      if (!world.is_first()) continue;
      std::map<std::string, std::string> metadata = {{"epochs_run", concat(epoch + 1)}};
      // blank<std::string>("how many replicas the run has, as text"): concat(ddp.total_replicas())
      const std::string shares = concat(ddp.total_replicas());
      metadata["replicas"] = shares;
      write_file(snapshot_path, to_safetensors({.tensors = state, .metadata = metadata}));
    }
    return 0;
  });
}
