// SPDX-License-Identifier: Apache-2.0
// Trains a model of its own on one rank, or on all ranks that mpirun, srun or lockrun starts.
#include <lockstep/lockstep.h>

using namespace lockstep;

/// y = output(tanh(value(x)) * gate(x)).
class GatedRegression : public Module {
 public:
  Tensor operator()(const Tensor& x) const { return output_(tanh(value_(x)) * gate_(x)); }

 private:
  Linear& value_ = add_part<Linear>("value", 20, 32);
  Linear& gate_ = add_part<Linear>("gate", 20, 32);
  Linear& output_ = add_part<Linear>("output", 32, 1);
};

int train_model() {
  const World world = World::from_environment();  // one rank alone, or a rank of the launcher's job
  const GatedRegression model;
  ParameterSpace parameters(model, {.seed = 7});         // draws initial values, in one flat space
  DataParallel ddp(parameters, world, {.replicas = 4});  // compares and broadcasts the values, makes buckets
  Sgd optimizer(parameters, {.momentum = 0.9});
  Loader loader = ddp.loader(std::make_shared<SyntheticRegression>(), {.batch_size = 32});
  for (int step = 1; step <= 64; ++step) {
    for (const Batch& batch : loader.next().batches)  // one for each replica of this rank
      ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
    const float loss = ddp.wait();  // now the gradients are the mean over all replicas
    optimizer.step(/*learning_rate=*/0.02);
    if (world.is_first() && step % 16 == 0) std::cout << "step " << step << ": loss " << loss << "\n";
  }
  if (world.is_first()) std::cout << "parameters " << hash_text(parameters_hash(model.parameters())) << "\n";
  return 0;
}

int main() { return run_program(train_model); }  // prints an exception once, and ends all ranks
