// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensor/autograd.h"
#include "tensor/parameter_memory.h"

namespace lockstep {

/// An operation on the tape: what it was computed from, and how its gradient flows back.
struct GradientNode {
  const char* op = "";
  uint64_t sequence = 0;                             ///< creation order; inputs are always older
  std::vector<std::shared_ptr<TensorState>> inputs;  ///< null where no gradient is wanted
  GradientFunction gradient;
  Tensor output_gradient;  ///< sum of what later operations have handed back so far
  Tensor loss_scale;       ///< of a loss that was told it

  /// Frees what the operation has saved.
  void clear() {
    gradient = nullptr;
    inputs.clear();
  }
};

/// What all handles of one tensor share.
struct TensorState {
  std::shared_ptr<Storage> storage;  ///< without memory: of a parameter that has none of its own
  int64_t offset_bytes = 0;
  Shape shape;
  DType dtype = DType::f32;
  Stream stream;  ///< its own, since storage may be replaced while somebody refers to it

  std::shared_ptr<GradientNode> node;      ///< set on what recorded operations return
  std::unique_ptr<LeafGradient> leaf;      ///< set on leaves that require a gradient
  std::unique_ptr<InitialValues> initial;  ///< of a parameter whose values nobody has made yet
  std::shared_ptr<ParameterMemory> space;  ///< that a parameter lies in, or null
  int64_t place = 0;                       ///< and its first element there

  bool wants_gradient() const { return node != nullptr || leaf != nullptr; }
  /// Where the elements lie. Makes what was only declared, and asks the space for what lies there.
  std::byte* data();
};

/// The tape's view of a handle's inside.
class Tape {
 public:
  static const std::shared_ptr<TensorState>& state(const Tensor& tensor) { return tensor.state_; }
  /// The sequence of the next operation.
  static uint64_t now();
  /// The leaves and older results that the operations below `y` since then read: each once, that of the
  /// newest operation first.
  static std::vector<Tensor> read_since(const Tensor& y, uint64_t since);
};

}  // namespace lockstep
