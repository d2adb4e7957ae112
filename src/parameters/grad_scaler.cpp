// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/grad_scaler.h"

#include <cmath>
#include <utility>

#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/grad_scale.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

GradScaler::GradScaler(ParameterSpace& space, const Options& options)
    : space_(space), rule_{options.growth_factor, options.backoff_factor, options.growth_interval} {
  const auto scale = static_cast<float>(options.initial_scale);
  expect(std::isfinite(scale) && scale > 0.0f, "a loss scale of ", options.initial_scale,
         "; it must be a positive fp32 number");
  expect(space.layout.dtype() == DType::f32, "a GradScaler for parameters in ", space.layout.dtype(),
         "; they must be f32");
  const MemoryScope scope("optimizer");
  const auto memory = Storage::make(sizeof(GradScale), space.layout.stream());
  state_ = Tensor(memory, 0, {grad_scale_words}, DType::i32);
  scale_ = Tensor(memory, 0, {}, DType::f32);
  set_state({.scale = scale});
}

void GradScaler::expect_phase(const char* call, Phase wanted, Phase or_this) const {
  if (phase_ == wanted || phase_ == or_this) return;
  constexpr const char* reasons[] = {"before GradScaler::backward(), which makes scaled gradients",
                                     "before step()", "after unscale(): call step(), then update()",
                                     "after step(): call update() first"};
  throw Error(concat("GradScaler::", call, " ", reasons[static_cast<size_t>(phase_)]));
}

void GradScaler::backward(const Tensor& loss, double factor) {
  expect_phase("backward()", Phase::idle, Phase::scaled);
  lockstep::backward(loss, factor, scale_);
  phase_ = Phase::scaled;
}

void GradScaler::unscale() {
  expect_phase("unscale()", Phase::scaled, Phase::scaled);
  space_.gradients.expect_present();
  const Tensor inverse = full({}, 1.0, DType::f32, space_.layout.stream());
  launch(space_.layout.stream(), Divide{.a = inverse.view(), .b = scale_.view(), .y = inverse.view()});
  const View gradients = space_.gradients().memory().view();
  launch(space_.layout.stream(), ScaleBy{.x = gradients, .factor = inverse.view(), .y = gradients});
  space_.gradients.set_unscaled();
  phase_ = Phase::unscaled;
}

GradientNorm GradScaler::step(Optimizer& optimizer, double learning_rate, double max_norm) {
  expect(&optimizer.space() == &space_, "the optimizer updates another space than the GradScaler's");
  expect_phase("step()", Phase::scaled, Phase::unscaled);
  const GradientNorm norm =
      measure_gradient_norm(space_, max_norm, phase_ == Phase::scaled ? scale_ : Tensor());
  optimizer.count_on_device();
  optimizer.prepare(learning_rate);
  optimizer.update(norm.factor);
  factor_ = norm.factor;
  phase_ = Phase::stepped;
  return norm;
}

void GradScaler::update() {
  expect_phase("update()", Phase::stepped, Phase::stepped);
  update(std::exchange(factor_, {}));
}

void GradScaler::update(const Tensor& factor) {
  expect_phase("update()", Phase::scaled, Phase::stepped);
  launch(space_.layout.stream(),
         UpdateGradScale{.state = state_.view(), .factor = factor.view(), .rule = rule_});
  phase_ = Phase::idle;
}

GradScale GradScaler::state() const {
  GradScale state;
  copy_bytes(&state, cpu_stream(), state_.view().data, state_.stream(), sizeof state);
  return state;
}

void GradScaler::set_state(const GradScale& state) {
  copy_bytes(state_.view().data, state_.stream(), &state, cpu_stream(), sizeof state);
}

}  // namespace lockstep
