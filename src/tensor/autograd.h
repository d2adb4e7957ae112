// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

class Walk;

/// One gradient per recorded input, in order; empty only for inputs that require none.
using Gradients = std::vector<Tensor>;

/// Where a gradient function leaves a gradient.
struct GradientTarget {
  Tensor memory;  ///< to be written and returned
  Tensor before;  ///< the same, where the finished gradient is to be added to what it holds; else empty
};

/// What a gradient function may ask the walk that runs it, about input `i` of its operation.
class GradientContext {
 public:
  /// Whether anybody wants the gradient of input `i`: nobody does that of a frozen parameter.
  bool wants(size_t i) const;

  /// Memory for the gradient of input `i`, to be overwritten and returned: where the leaf keeps it, if this
  /// is its first use and it does not accumulate; else new, like `model`.
  Tensor gradient_memory(size_t i, const Tensor& model);

  /// The same for a function that can add in the pass that finishes the gradient: of a leaf that has a
  /// gradient to which this one is to be added, that.
  GradientTarget gradient_target(size_t i, const Tensor& model);

  /// What later operations have handed back for input `i` so far, taken over: the function returns the total.
  /// Empty if there is nothing yet.
  Tensor take_gradient(size_t i);

  /// The value of dy where backward() starts from this operation with a seed, so that the host knows it.
  std::optional<double> starting_gradient() const;

  /// The function has run its operation again, recorded, and the result is `y`: the walk goes on through the
  /// operations below `y` in place of this one, and what the function returns does not count.
  void continue_through(const Tensor& y) { again_ = y; }

 private:
  friend class Walk;
  GradientContext(Walk& walk, GradientNode& node) : walk_(walk), node_(node) {}
  Walk& walk_;
  GradientNode& node_;
  Tensor again_;
};

/// Given the gradient of the output, returns those of the inputs. Whatever it captures is what the tape
/// saves: capture detached tensors only.
using GradientFunction = std::function<Gradients(const Tensor& dy, GradientContext& context)>;

/// Puts `y = op(inputs)` on the tape and returns y. If nothing in `inputs` requires a gradient, or recording
/// is off, y is returned as it is and the function is dropped. Empty inputs are allowed (optional arguments).
Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs, GradientFunction gradient);
/// The same with a function that needs the gradient of the output only.
Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs,
              std::function<Gradients(const Tensor& dy)> gradient);

/// Tells that the gradient of `loss`, which record() has returned, holds this loss scale as a factor.
void set_loss_scale(const Tensor& loss, const Tensor& scale);

/// True if record() would keep the gradient: what an op may ask before it saves something costly.
bool is_recorded(const std::vector<Tensor>& inputs);

/// Where and how backward() leaves the gradient of one leaf.
struct LeafGradient {
  Tensor buffer;                ///< like the leaf; made at first use if empty
  bool accumulate = false;      ///< add to what the buffer holds instead of overwriting it
  bool is_written = false;      ///< some backward() has left a gradient
  std::function<void()> begin;  ///< called before a backward() writes the buffer, perhaps more than once
  std::function<void()> ready;  ///< called once per backward(), after the last use of the leaf
};

/// The leaf's sink, for DistributedDataParallel and its like. Throws Error if `leaf` is not a leaf.
LeafGradient& leaf_gradient(const Tensor& leaf);

/// Walks the tape from the scalar `loss`, newest operation first, with d loss = `seed`. The first use of a
/// leaf overwrites its gradient, later uses add in tape order; a leaf that accumulates gets their sum. Each
/// node is freed as soon as it has run, so a loss can be walked once. Throws Error if `loss` is not a scalar
/// on the tape.
void backward(const Tensor& loss, double seed = 1.0);
/// The same with all gradients multiplied by `scale`, one f32 element beside the loss: GradScaler's. A loss
/// that was told this scale holds it already; one that is computed from such a loss is an Error.
void backward(const Tensor& loss, double seed, const Tensor& scale);
/// The same from a tensor of any shape, with the gradient that it has received.
void backward(const Tensor& y, const Tensor& dy);

/// Whether operations are recorded on this thread during its life.
class Recording {
 public:
  explicit Recording(bool on);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  bool before_;
};
/// Nothing is recorded: evaluation and generation.
struct NoGrad : Recording {
  NoGrad() : Recording(false) {}
};
/// Operations are recorded again, within NoGrad or a gradient function.
struct EnableGrad : Recording {
  EnableGrad() : Recording(true) {}
};

}  // namespace lockstep
