// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/swiglu.h"

#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  const OperationScope operation("swiglu");
  expect(up.shape() == gate.shape(), "swiglu: the gate is ", gate.shape(), ", up is ", up.shape(),
         "; equal shapes are needed");
  const Tensor y = empty_like(gate);
  launch(gate.stream(), SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()});
  return record("swiglu", y, {gate, up},
                [gate = gate.detach(), up = up.detach()](const Tensor& dy) -> Gradients {
                  const Tensor dgate = empty_like(gate), dup = empty_like(up);
                  launch(dy.stream(), SwigluBackward{.gate = gate.view(),
                                                     .up = up.view(),
                                                     .dy = dy.view(),
                                                     .dgate = dgate.view(),
                                                     .dup = dup.view()});
                  return {dgate, dup};
                });
}

}  // namespace lockstep
