// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/grad_scale.h"
#include "parameters/gradient_norm.h"
#include "parameters/optimizer.h"

namespace lockstep {

/// Keeps small gradients alive in fp16, by PyTorch's rules (torch.amp.GradScaler): what a loss hands back is
/// multiplied by a scale, a step whose gradients are not finite is skipped, and the scale follows from that.
///
///     context.loss_scale = scaler.scale();               // for losses that form their gradient in 16 bits
///     scaler.backward(loss_of(batch, context));
///     scaler.step(optimizer, learning_rate, max_norm);   // in the place of the norm and optimizer.step()
///     scaler.update();
///
/// The scale lies beside the parameters and kernels decide: the host neither waits nor knows. Calls in
/// another order throw Error saying what is missing.
class GradScaler {
 public:
  struct Options {
    double initial_scale = 65536.0;
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    int32_t growth_interval = 2000;
  };

  /// Keeps a reference to the space, whose parameters are f32.
  GradScaler(ParameterSpace& space, const Options& options);
  explicit GradScaler(ParameterSpace& space) : GradScaler(space, Options{}) {}
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;

  ParameterSpace& space() const { return space_; }
  /// One f32 element, what Context::loss_scale tells a loss.
  const Tensor& scale() const { return scale_; }

  /// backward(loss, factor), with gradients multiplied by the scale, once, whether the loss was told of it or
  /// not. Throws Error for a loss that is computed from one that was told.
  void backward(const Tensor& loss, double factor = 1.0);
  /// Optional, once between backward() and step(): makes the gradients what they are without a scale.
  void unscale();
  /// One update with gradients clipped to `max_norm` (0: not), or none if their norm is not finite. Returns
  /// that norm, without the scale.
  GradientNorm step(Optimizer& optimizer, double learning_rate, double max_norm = 0.0);
  /// Chooses the scale of the next step.
  void update();
  /// The same after DataParallel::update(), with the clip factor that it has used.
  void update(const Tensor& factor);

  /// All that a snapshot needs: the host waits for it. Adam's count of steps is the optimizer's.
  GradScale state() const;
  void set_state(const GradScale& state);
  /// The same where it lies: i32 [3].
  const Tensor& device_state() const { return state_; }

 private:
  enum class Phase { idle, scaled, unscaled, stepped };
  void expect_phase(const char* call, Phase wanted, Phase or_this) const;

  ParameterSpace& space_;
  GradScaleRule rule_;
  Tensor state_;   ///< i32 [3]: a GradScale
  Tensor scale_;   ///< f32: its first element
  Tensor factor_;  ///< of the last step
  Phase phase_ = Phase::idle;
};

}  // namespace lockstep
