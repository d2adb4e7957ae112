// SPDX-License-Identifier: Apache-2.0
// Exercise 4b, who saves and who reads. Two nodes have two ranks each and a disk of their own. One snapshot
// is enough, but the ranks of the other node cannot read it. Decide which rank writes, which rank reads, and
// how the others get the state. check_exercise stops the run after two epochs and starts it again for two
// more. See docs/tutorial/exercises.md, 4b.
#include "apps/tutorial/exercises/exercise.h"

using namespace lockstep;

constexpr double learning_rate = 1e-2;

int main(int argc, char** argv) {
  const Options options(argc, argv, "total_epochs=2 --batch_size=32 --ranks=4 --nodes=2");
  return launch_ranks(options["--ranks"], [&](const World& world) {
    const Node node = pretend_node(world, options["--nodes"]);
    const std::vector<std::string> names = world.communicator().all_gather_text(node.name);
    const auto local_rank = std::count(names.begin(), names.begin() + world.rank(), node.name);
    report_ranks(world, 0, concat("is ", node.name, ":", local_rank));
    const std::string snapshot_path = node.disk + "snapshot.safetensors";
    const auto data = std::make_shared<SyntheticRegression>(2048, 20);
    const Mlp model({20, 1});
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, world, {});
    Sgd optimizer(parameters, {.momentum = 0.9});
    Loader loader = ddp.loader(data, {.batch_size = options["--batch_size"]});

    std::vector<NamedTensor> state = model.parameters();
    for (const NamedTensor& velocity : optimizer.state()) state.push_back(velocity);
    int epochs_run = 0;
    // blank<bool>("does this rank read a snapshot?"): world.is_first() && std::filesystem::exists(snapshot_path)
    const bool reads = world.is_first() && std::filesystem::exists(snapshot_path);
    const std::string read = reads ? to_safetensors(load_safetensors(snapshot_path)) : "";
    // blank<std::string>("what was read, on every rank"): world.communicator().broadcast_text(read, 0)
    const std::string bytes = world.communicator().broadcast_text(read, 0);
    if (!bytes.empty()) {
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
      // blank<bool>("does this rank write the snapshot?"): world.is_first()
      const bool writes = world.is_first();
      const std::string epochs = concat(epoch + 1);
      if (writes)
        write_file(snapshot_path, to_safetensors({.tensors = state, .metadata = {{"epochs_run", epochs}}}));
    }
    world.communicator().barrier();  // waits until the snapshot is written
    const int64_t steps = options["total_epochs"] * loader.steps_per_epoch();
    if (world.is_first()) report_words(steps, files_on_disks(options["--nodes"]));
    return 0;
  });
}
