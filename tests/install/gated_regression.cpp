// SPDX-License-Identifier: Apache-2.0
// A model of the user's own, trained on as many ranks as the program is started with.
#include <iostream>
#include <memory>

#include "comm/world.h"
#include "core/error.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "dist/data_parallel.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/sgd.h"
#include "snapshot/parameters_hash.h"
#include "tensor/ops.h"

using namespace lockstep;

namespace {

/// y = output(tanh(value(x)) * gate(x)).
class GatedRegression : public Module {
 public:
  GatedRegression() {
    add_part("value", value_);
    add_part("gate", gate_);
    add_part("output", output_);
  }

  Tensor operator()(const Tensor& x) const { return output_(multiply(lockstep::tanh(value_(x)), gate_(x))); }

 private:
  Linear value_{20, 32};
  Linear gate_{20, 32};
  Linear output_{32, 1};
};

int train() {
  const World world = World::from_environment();
  const GatedRegression model;
  initialize_linears(model.parameters(), 7);
  ParameterSpace parameters(model.parameters());
  DataParallel ddp(parameters, world, {.replicas = 4});
  Sgd optimizer(parameters, {.momentum = 0.9});
  Loader loader(std::make_shared<SyntheticRegression>(),
                {.replicas = 4, .local_replicas = ddp.replicas(), .batch_size = 32});
  float first_loss = 0.0f;
  float loss = 0.0f;
  for (int step = 0; step < 64; ++step) {
    for (const Batch& batch : loader.next().batches)
      ddp.backward(mean_squared_error(model(batch.inputs), batch.targets));
    loss = ddp.wait();
    optimizer.step(0.02);
    if (step == 0) first_loss = loss;
  }
  expect(loss < 0.5f * first_loss, "the loss went from ", first_loss, " to ", loss);
  if (world.is_first())
    std::cout << "loss " << first_loss << " -> " << loss << ", parameters "
              << hash_text(parameters_hash(model.parameters())) << "\n";
  return 0;
}

}  // namespace

int main() { return run_program(train); }
