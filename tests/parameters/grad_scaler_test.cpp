// SPDX-License-Identifier: Apache-2.0
// A GradScaler in hand-written loops: its rules, the order of its calls, and that it does not change the
// result.
#include "lockstep/parameters/grad_scaler.h"

#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/grad_scale.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/ops.h"
#include "support/golden.h"
#include "support/gradient_check.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

constexpr double learning_rate = 0.05, norm_limit = 0.5;

/// A classifier. Its loss takes an optional scale, and computes all rows at once or a few at a time.
struct Classifier {
  Tensor table = uniform_tensor({11, 6}, 1, DType::f32), head = uniform_tensor({5, 6}, 2, DType::f32);
  ParameterSpace space;

  Classifier() : space({{"table", table.set_requires_grad()}, {"head", head.set_requires_grad()}}) {}

  Tensor loss(int step, const Tensor& loss_scale = {}, int64_t rows_at_once = 0) const {
    std::vector<int32_t> ids, targets;
    for (int row = 0; row < 7; ++row) {
      ids.push_back((3 * row + step) % 11);
      targets.push_back((row * row + step) % 5);
    }
    return linear_cross_entropy(tanh(embedding(from_values(ids, {7}), table)), head,
                                from_values(targets, {7}), rows_at_once, -1, loss_scale);
  }
};

// A scale that is a power of two commutes with every rounding in fp32. So a scaled step is bit-identical to a
// step without a scale. The scale must be applied once and removed once, at any place.
TEST(GradScaler, ShowsNowhereElse) {
  Classifier plain;
  Sgd sgd(plain.space, {.momentum = 0.9});
  for (int step = 0; step < 4; ++step) {
    backward(plain.loss(step), 0.5);
    sgd.step(learning_rate, static_cast<float>(item(measure_gradient_norm(sgd.space(), norm_limit).factor)));
  }
  for (const bool is_told : {false, true})
    for (const int64_t rows_at_once : {0, 3})
      for (const bool unscales : {false, true}) {
        Classifier model;
        Sgd optimizer(model.space, {.momentum = 0.9});
        GradScaler scaler(model.space, {.growth_interval = 2});
        for (int step = 0; step < 4; ++step) {
          scaler.backward(model.loss(step, is_told ? scaler.scale() : Tensor(), rows_at_once), 0.5);
          double norm = 0.0;
          if (unscales) {
            scaler.unscale();
            norm = gradient_norm(model.space);
          }
          const double of_step = item(scaler.step(optimizer, learning_rate, norm_limit).norm);
          EXPECT_TRUE(!unscales || of_step == norm) << of_step;
          scaler.update();
        }
        const bool is_in_pieces = rows_at_once > 0;  // their gradients add up in another order
        EXPECT_EQ(has_same_bits(model.space.values(), plain.space.values()), !is_in_pieces)
            << is_told << rows_at_once << unscales;
        for (size_t i = 0; i < to_doubles(model.head).size(); ++i)
          ASSERT_NEAR(to_doubles(model.head)[i], to_doubles(plain.head)[i], 1e-6);
        EXPECT_EQ(scaler.state(), (GradScale{4 * 65536.0f, 0, 0}));
        EXPECT_EQ(optimizer.steps_taken(), 4);
      }
}

/// Makes a step of the one-element model, whose gradient is `gradient`.
void take_step(GradScaler& scaler, Optimizer& optimizer, const Tensor& parameter, double gradient) {
  scaler.backward(scale(sum(parameter), gradient));
  scaler.step(optimizer, learning_rate);
  scaler.update();
}

TEST(GradScaler, StepsThatOverflowAreSkippedAndNotCounted) {
  constexpr double infinity = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  const double gradients[] = {0.5, infinity, -0.25, nan, nan, 1.0, 0.125};
  Tensor with = from_values<float>({1.0f}, {1}), without = from_values<float>({1.0f}, {1});
  ParameterSpace space({{"x", with.set_requires_grad()}}), other({{"x", without.set_requires_grad()}});
  AdamW optimizer(space, {.weight_decay = 0.1}), expected(other, {.weight_decay = 0.1});
  GradScaler scaler(space, {.initial_scale = 8.0, .growth_interval = 2}),
      steady(other, {.initial_scale = 1.0});
  int good = 0;
  for (const double gradient : gradients) {
    const Tensor before = convert(with.detach(), DType::f64);
    take_step(scaler, optimizer, with, gradient);
    if (std::isfinite(gradient)) {
      take_step(steady, expected, without, gradient);
      ++good;
    } else {
      EXPECT_EQ(item(with), item(before)) << "a skipped step changed something";
    }
    EXPECT_TRUE(has_same_bits(with, without)) << gradient;
    EXPECT_EQ(optimizer.steps_taken(), good);
  }
  for (size_t s = 0; s < 2; ++s)
    EXPECT_TRUE(has_same_bits(optimizer.states()[s].flat, expected.states()[s].flat)) << s;
  EXPECT_EQ(scaler.state(), (GradScale{2.0f, 0, 3})) << "8 / 2 / 2 / 2, and twice that after two good ones";
}

/// Covers scales at both ends of the range of fp32.
TEST(GradScaler, TheScalesArePyTorchs) {
  const Golden golden("grad_scaler");
  for (const std::string run :
       {"default", "interval_3", "interval_1", "other_factors", "no_larger_than_fp32", "subnormal"}) {
    const std::vector<double> options = to_doubles(golden.stored(run + ".options")),
                              overflows = to_doubles(golden.stored(run + ".found_inf")),
                              scales = to_doubles(golden.stored(run + ".scale")),
                              trackers = to_doubles(golden.stored(run + ".growth_tracker"));
    const GradScaleRule rule{options[1], options[2], static_cast<int32_t>(options[3])};
    GradScale state{.scale = static_cast<float>(options[0])};
    ASSERT_FALSE(scales.empty());
    for (size_t step = 0; step < scales.size(); ++step) {
      float factor = overflows[step] > 0.0 ? std::nanf("") : 1.0f;
      const View words{&state, {grad_scale_words}, DType::i32}, at{&factor, {}, DType::f32};
      launch(cpu_stream(), UpdateGradScale{.state = words, .factor = at, .rule = rule});
      ASSERT_EQ(state.scale, scales[step]) << run << ", step " << step;
      ASSERT_EQ(state.growth_tracker, trackers[step]) << run << ", step " << step;
    }
    EXPECT_EQ(state.skipped_steps, std::ranges::count(overflows, 1.0)) << run;
  }
}

TEST(GradScaler, AScaleIsAPositiveNumberOfFp32) {
  Classifier model;
  EXPECT_THROW(GradScaler(model.space, {.initial_scale = 1e39}), Error);
  EXPECT_THROW(GradScaler(model.space, {.initial_scale = 0.0}), Error);
}

// The device's bias corrections equal the host's to the last units of a double.
TEST(GradScaler, CountsAdamsStepsAsTheHostDoes) {
  for (const int64_t step : {1, 2, 3, 10, 1000, 123456}) {
    const Tensor count = full({}, static_cast<double>(step), DType::i32),
                 schedule = full({3}, 0.01, DType::f64);
    launch(cpu_stream(), AdamWSchedule{.step = count.view(), .schedule = schedule.view(), .beta2 = 0.95});
    const std::array<double, 3> expected = adamw_schedule(0.01, 0.9, 0.95, step);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(to_doubles(schedule)[i], expected[i], 1e-13 * expected[i]) << step;
  }
}

// Gradients below the smallest fp16 number are lost, unless the loss applies the scale before it rounds.
TEST(GradScaler, TellingTheLossKeepsSmallGradients) {
  const auto gradient_of = [](bool is_told) {
    Tensor logits = convert(from_values<float>({20.0f, 0.0f, 0.0f}, {1, 3}), DType::f16);
    Tensor x = from_values<float>({1.0f}, {1});
    ParameterSpace space({{"x", x.set_requires_grad()}});
    GradScaler scaler(space);
    logits.set_requires_grad();
    scaler.backward(
        cross_entropy(logits, from_values<int32_t>({0}, {1}), -1, is_told ? scaler.scale() : Tensor()));
    return to_doubles(logits.grad())[1] / 65536.0;
  };
  EXPECT_EQ(gradient_of(false), 0.0);
  EXPECT_NEAR(gradient_of(true), std::exp(-20.0), 1e-3 * std::exp(-20.0));
}

TEST(GradScaler, CallsInAnotherOrderSayWhatIsMissing) {
  Classifier model;
  AdamW optimizer(model.space, {});
  GradScaler scaler(model.space);
  const auto expect_said = [](const std::function<void()>& call, const std::string& words) {
    const std::string said = error_of(call);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  const auto step = [&] { scaler.step(optimizer, learning_rate); };
  const auto scaled = [&] { scaler.backward(model.loss(0)); };
  expect_said([&] { scaler.unscale(); }, "before GradScaler::backward()");
  expect_said(step, "before GradScaler::backward()");
  expect_said([&] { scaler.update(); }, "before GradScaler::backward()");
  scaled();
  scaled();  // another micro-batch
  expect_said([&] { scaler.update(); }, "before step()");
  expect_said([&] { gradient_norm(model.space); }, "unscale()");
  expect_said([&] { optimizer.step(learning_rate); }, "unscale()");
  scaler.unscale();
  EXPECT_GT(gradient_norm(model.space), 0.0);
  expect_said([&] { scaler.unscale(); }, "after unscale()");
  expect_said(scaled, "after unscale()");
  expect_said([&] { scaler.update(); }, "after unscale()");
  step();
  expect_said(step, "call update()");
  expect_said(scaled, "call update()");
  expect_said([&] { scaler.unscale(); }, "call update()");
  scaler.update();
  expect_said([&] { scaler.update(); }, "before GradScaler::backward()");
  scaled();
  step();
  expect_said([&] { gradient_norm(model.space); }, "unscale()");  // gradients are still scaled
  scaler.update();
  backward(model.loss(0));
  EXPECT_GT(gradient_norm(model.space), 0.0) << "these gradients were never scaled";
  expect_said([&] { optimizer.step(learning_rate); }, "GradScaler::step()");
  Classifier other;
  AdamW stranger(other.space, {});
  scaled();
  expect_said([&] { scaler.step(stranger, learning_rate); }, "another space");
}

TEST(GradScaler, ALossIsScaledExactlyOnce) {
  Classifier model;
  GradScaler scaler(model.space), other(model.space);
  const auto told = [&] { return model.loss(0, scaler.scale()); };
  EXPECT_NE(error_of([&] { scaler.backward(add(told(), told())); }).find("compute it without loss_scale"),
            std::string::npos);
  EXPECT_THROW(scaler.backward(scale(told(), 0.5)), Error);
  EXPECT_THROW(backward(told()), Error) << "the gradients would stay scaled";
  EXPECT_THROW(other.backward(told()), Error);
  scaler.backward(add(model.loss(0), model.loss(1)));
  scaler.unscale();
  EXPECT_LT(gradient_norm(model.space), 10.0);
}

}  // namespace
}  // namespace lockstep
