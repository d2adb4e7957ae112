// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/tensor/operation_scope.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

namespace detail {
struct GradientNode;
class Walk;
}  // namespace detail

/// One gradient per input of the operation, in order. A gradient is empty only if its input requires none.
using Gradients = std::vector<Tensor>;

/// Memory that a gradient function writes a gradient to.
struct GradientTarget {
  Tensor memory;  ///< the function writes the gradient here and returns it
  Tensor before;  ///< equals `memory` if the gradient must be added to its contents; else empty
};

/// Services of a running backward() for a gradient function. `i` is the index of an input of its operation.
class GradientContext {
 public:
  /// Returns whether the gradient of input `i` is needed. A frozen parameter needs none.
  bool wants(size_t i) const;

  /// Returns memory like `model` for the gradient of input `i`. The function overwrites and returns it. This
  /// is the leaf's own buffer at the first use of a leaf that does not accumulate. Else it is new.
  Tensor gradient_memory(size_t i, const Tensor& model);

  /// Returns memory for a gradient function that can add to existing contents in its last pass. If a leaf
  /// already has a gradient to which this one is added, the target is that gradient.
  GradientTarget gradient_target(size_t i, const Tensor& model);

  /// Takes over the sum of the gradients that later operations have computed for input `i` so far. It is
  /// empty if there are none yet. The function then returns the total.
  Tensor take_gradient(size_t i);

  /// Returns take_gradient(i) in memory that the function may change. It is zeros of `shape` and of dy's
  /// dtype if there is no gradient yet.
  Tensor take_own_gradient(size_t i, const Shape& shape, const Tensor& dy);

  /// Returns memory for the sums of the columns of input `i`'s gradient, if the operation that made the input
  /// needs them as the gradient of a bias. Else it is empty. Call it after take_gradient(i) and write the
  /// sums of the gradient that the function returns for the input.
  Tensor column_sum_memory(size_t i);

  /// Returns the sums of dy's columns if a later operation has written them to column_sum_memory(). Else it
  /// is empty. It is the gradient of the operation's bias.
  Tensor column_sum() const;

  /// Returns the value of dy if the host knows it. This is so if backward() starts at this operation with a
  /// seed.
  std::optional<double> starting_gradient() const;

  /// Reports that the function has run its operation again on the tape with the result `y`. The backward
  /// continues through the operations below `y` instead of this one. It ignores what the function returns.
  void continue_through(const Tensor& y) { again_ = y; }

 private:
  friend class detail::Walk;
  GradientContext(detail::Walk& walk, detail::GradientNode& node) : walk_(walk), node_(node) {}
  detail::Walk& walk_;
  detail::GradientNode& node_;
  Tensor again_;
};

/// Computes the gradients of the inputs from the gradient of the output. The tape saves everything that the
/// function captures. So capture detached tensors only.
using GradientFunction = std::function<Gradients(const Tensor& dy, GradientContext& context)>;

/// Puts `y = op(inputs)` on the tape and returns y. It returns y unchanged and drops the function if no input
/// requires a gradient or recording is off. Inputs may be empty (optional arguments).
Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs, GradientFunction gradient);
/// Records an operation whose gradient function needs only the gradient of the output.
Tensor record(const char* op, const Tensor& y, std::vector<Tensor> inputs,
              std::function<Gradients(const Tensor& dy)> gradient);

/// Notes that the gradient of `loss` already contains the factor `scale`. `loss` is a result of record().
void set_loss_scale(const Tensor& loss, const Tensor& scale);

/// Notes that the gradient of input `i` of the operation that made `y` is the sums of the columns of y's
/// gradient. A later operation on a GPU may then compute both in one pass.
void set_bias_input(const Tensor& y, size_t i);

/// Returns whether record() would keep the gradient. An operation can check this before it saves costly data.
bool is_recorded(const std::vector<Tensor>& inputs);

/// The gradient of one leaf: its buffer and how backward() writes it.
struct LeafGradient {
  Tensor buffer;                ///< like the leaf; allocated at first use if empty
  bool accumulate = false;      ///< add to the buffer's contents instead of overwriting them
  bool is_written = false;      ///< a backward() has written a gradient
  std::function<void()> begin;  ///< called before a backward() writes the buffer, perhaps more than once
  std::function<void()> ready;  ///< called once per backward(), after the last use of the leaf
};

/// Returns where backward() writes the gradient of `leaf`; DataParallel sets its hooks there. Throws Error if
/// `leaf` is not a leaf that requires a gradient.
LeafGradient& leaf_gradient(const Tensor& leaf);

/// Computes gradients from the scalar `loss` with d loss = `seed`, newest operation first. The first use of a
/// leaf overwrites its gradient and later uses add in tape order. For a leaf that accumulates, the sum of
/// all uses is added to its gradient. Each node is freed as soon as it has run. So backward() runs once per
/// loss. Throws Error if `loss` is not a scalar on the tape.
void backward(const Tensor& loss, double seed = 1.0);
/// Computes gradients multiplied by `scale` (one f32 element on the loss's device) for GradScaler. A loss
/// that set_loss_scale() marked contains the factor already. Throws Error for a loss made from such a loss.
void backward(const Tensor& loss, double seed, const Tensor& scale);
/// Computes gradients from a tensor `y` of any shape and its gradient `dy`.
void backward(const Tensor& y, const Tensor& dy);

/// A scope in which this thread records operations (`on`) or does not.
class Recording {
 public:
  explicit Recording(bool on);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  bool before_;
};
/// A scope in which nothing is recorded, for evaluation and generation.
struct NoGrad : Recording {
  NoGrad() : Recording(false) {}
};
/// A scope in which operations are recorded again, within NoGrad or a gradient function.
struct EnableGrad : Recording {
  EnableGrad() : Recording(true) {}
};

}  // namespace lockstep
