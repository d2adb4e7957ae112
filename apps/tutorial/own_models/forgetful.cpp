// SPDX-License-Identifier: Apache-2.0
// Makes one of four mistakes of a model of one's own. docs/own_models.md shows the messages.
#include <memory>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/nn/layers.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/operators.h"

using namespace lockstep;

/// A model that forgets what its argument says.
class Forgetful : public Module {
 public:
  explicit Forgetful(const std::string& what) : what_(what) {
    if (what == "part") add_part("lost", *std::make_unique<Linear>(3, 3));
    if (what == "values") bare_ = add_parameter("bare", {3, 3}, {.fill = zeros_by_mistake, .name = "mine"});
  }

  Tensor operator()(const Tensor& x) const {
    if (what_ == "layer") return unlisted_(listed_(x));
    if (what_ == "tensor") return listed_(x) * loose_;
    return what_ == "values" ? linear(listed_(x), bare_) : listed_(x);
  }

 private:
  static void zeros_by_mistake(const Tensor& part, int64_t /*first*/) { fill(part, 0.0); }

  std::string what_;
  Linear& listed_ = add_part<Linear>("listed", 3, 3);
  Linear unlisted_{3, 3};                              // no part
  Tensor loose_ = full({3}, 1.0).set_requires_grad();  // no parameter
  Tensor bare_;
};

int main(int argc, char** argv) {
  return run_program([&] {
    require(argc == 2, "usage: forgetful layer|tensor|values|part");
    const Forgetful model(argv[1]);
    ParameterSpace parameters(model);
    DataParallel ddp(parameters, World::alone(), {});
    ddp.backward(mean(model(full({4, 3}, 0.5))));
    ddp.wait();
    return 0;
  });
}
