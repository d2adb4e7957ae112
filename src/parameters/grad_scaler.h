// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/grad_scale_state.h"
#include "lockstep/parameters/gradient_norm.h"
#include "lockstep/parameters/optimizer.h"

namespace lockstep {

/// A loss scale that keeps small gradients from vanishing in fp16, by PyTorch's rules (torch.amp.GradScaler).
/// The gradient of a loss is multiplied by the scale. A step whose gradients are not finite is skipped. The
/// next scale follows from good and skipped steps.
///
///     context.loss_scale = scaler.scale();               // for losses that form their gradient in 16 bits
///     scaler.backward(loss_of(batch, context));
///     scaler.step(optimizer, learning_rate, max_norm);   // instead of the norm and optimizer.step()
///     scaler.update();
///
/// The scale is stored on the parameters' device, and kernels decide. The host neither waits for the decision
/// nor learns it. A GradScaler counts at most 2^31 - 1 steps of the optimizer. Calls in another order throw
/// Error naming the missing call.
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
  /// Returns the scale as one f32 element, for Context::loss_scale.
  const Tensor& scale() const { return scale_; }

  /// Calls backward(loss, factor) with gradients multiplied by the scale. They are multiplied once, even if
  /// the loss has received the scale already. Throws Error for a loss that is computed from such a loss.
  void backward(const Tensor& loss, double factor = 1.0);
  /// Divides the gradients by the scale. Optional and at most once, between backward() and step().
  void unscale();
  /// Makes one update with gradients clipped to `max_norm`; 0 disables clipping. Skips it if their norm is
  /// not finite. Returns the norm without the scale.
  GradientNorm step(Optimizer& optimizer, double learning_rate, double max_norm = 0.0);
  /// Chooses the scale of the next step.
  void update();
  /// Chooses the scale of the next step after DataParallel::update(), with the clip factor that it has used.
  void update(const Tensor& factor);

  /// Returns the state that a snapshot needs. The host waits for it. The optimizer has Adam's count of steps.
  GradScale state() const;
  void set_state(const GradScale& state);
  /// Returns the state on the parameters' device: i32 [3].
  const Tensor& device_state() const { return state_; }

 private:
  enum class Phase { idle, scaled, unscaled, stepped };
  void expect_phase(const char* call, Phase wanted, Phase or_this) const;

  ParameterSpace& space_;
  GradScaleRule rule_;
  Tensor state_;   ///< i32 [3]: a GradScale
  Tensor scale_;   ///< f32: its first element
  Tensor factor_;  ///< clip factor of the last step
  Phase phase_ = Phase::idle;
};

}  // namespace lockstep
