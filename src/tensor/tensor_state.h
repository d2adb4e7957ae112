// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/parameter_memory.h"

namespace lockstep {
namespace detail {

/// An operation on the tape: its inputs and the function that computes their gradients.
struct GradientNode {
  const char* op = "";
  uint64_t sequence = 0;                             ///< creation order; inputs are always older
  std::vector<std::shared_ptr<TensorState>> inputs;  ///< null if the input needs no gradient
  GradientFunction gradient;
  Tensor output_gradient;                 ///< sum of the gradients from later operations so far
  Tensor loss_scale;                      ///< set by set_loss_scale()
  std::optional<size_t> bias_input = {};  ///< input whose gradient is the column sums of output_gradient
  Tensor column_sum = {};  ///< these sums, if the operation that computed output_gradient has them

  /// Returns the id() of each input, or null.
  std::vector<const void*> input_ids() const {
    std::vector<const void*> ids;
    for (const auto& input : inputs) ids.push_back(input.get());
    return ids;
  }
  /// Frees the data that the operation has saved.
  void clear() {
    gradient = nullptr;
    column_sum = {};
    inputs.clear();
  }
};

/// Facts about a leaf that was declared as a parameter.
struct DeclaredLeaf {
  /// A seed and the parameter's place in its model.
  struct Seed {
    uint64_t seed;
    uint32_t place;
  };

  std::string name;  ///< for messages, such as "Linear.weight"
  std::function<InitialValues(uint64_t seed, uint32_t place)> with_seed;  ///< InitialValues::with_seed
  std::optional<Seed> of_space = {};  ///< what the space gives later values
  bool has_own_seed = false;          ///< initialize() was called with a seed, so a space does not draw again
};

/// State that all handles of one tensor share.
struct TensorState {
  TensorState() = default;
  TensorState(const TensorState&) = delete;
  TensorState& operator=(const TensorState&) = delete;
  ~TensorState();

  std::shared_ptr<Storage> storage;  ///< its data is null for a parameter without memory of its own
  int64_t offset_bytes = 0;
  Shape shape;
  DType dtype = DType::f32;
  Stream stream;  ///< its own copy: storage may be replaced while a reference to it exists

  std::shared_ptr<GradientNode> node;      ///< set on results of recorded operations
  std::unique_ptr<LeafGradient> leaf;      ///< set on leaves that require a gradient
  std::unique_ptr<DeclaredLeaf> declared;  ///< set on leaves that were declared
  bool may_be_zero = false;                ///< InitialValues::are_zero of the last initial values
  std::unique_ptr<InitialValues> initial;  ///< set if a parameter's values are not computed yet
  std::shared_ptr<ParameterMemory> space;  ///< the space that a parameter belongs to, or null
  int64_t place = 0;                       ///< index of its first element in the space

  bool wants_gradient() const { return node != nullptr || leaf != nullptr; }
  /// Returns the memory of the elements. Allocates and fills a declared tensor. Asks the space for elements
  /// that it keeps.
  std::byte* data();
};

}  // namespace detail

// The files of this folder use these names without detail.
using detail::DeclaredLeaf, detail::GradientNode, detail::ParameterMemory, detail::TensorState, detail::Walk;

/// A scope in which every leaf that backward() trains must belong to one space. Elsewhere a leaf may belong
/// to none, unless it is a declared parameter and others on its tape are in a space.
class TrainedSpace {
 public:
  explicit TrainedSpace(const ParameterMemory* space) : before_(std::exchange(current(), space)) {}
  ~TrainedSpace() { current() = before_; }
  TrainedSpace(const TrainedSpace&) = delete;
  TrainedSpace& operator=(const TrainedSpace&) = delete;

  /// Returns the space of this thread's scope; null outside of scopes.
  static const ParameterMemory*& current();

 private:
  const ParameterMemory* before_;
};

/// The tape's access to the state of tensors.
class Tape {
 public:
  static const std::shared_ptr<TensorState>& state(const Tensor& tensor) { return tensor.state_; }
  /// Returns the sequence of the next operation.
  static uint64_t now();
  /// Returns the leaves and older results that the operations below `y` have read since `since`. Each is
  /// listed once. Those of the newest operation come first.
  static std::vector<Tensor> read_since(const Tensor& y, uint64_t since);
  /// Returns the input that set_bias_input() named for the operation that made `y`; empty if there is none.
  static Tensor bias_of(const Tensor& y);
};

}  // namespace lockstep
