// SPDX-License-Identifier: Apache-2.0
#include "kernels/bits/numbers.h"
#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/comparison.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/elementary.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/extreme.h"
#include "lockstep/kernels/fold.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/power.h"
#include "lockstep/kernels/random_fill.h"
#include "lockstep/kernels/sgd.h"
#include "lockstep/kernels/sigmoid.h"
#include "lockstep/kernels/swiglu.h"
#include "lockstep/kernels/transpose.h"

namespace lockstep::bits {
namespace {

constexpr int64_t counts[] = {1, 7, 33, 100, 5001};

void print_functions(int64_t count, DType dtype) {
  Values x = spread({count}, dtype, 1, -130, 7), dy = uniform({count}, dtype, 2), y({count}, dtype),
         dx({count}, dtype);
  Values sizes = positive({count}, dtype, 3, -140, 100);
  const auto label = [&](const char* name) { return concat(name, " ", dtype, " ", count); };
  for (const Gelu form : {Gelu::tanh, Gelu::erf}) {
    launch_here(GeluForward{.x = x.view(), .y = y.view(), .form = form});
    launch_here(GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = form});
    print_line(label(form == Gelu::tanh ? "gelu_tanh" : "gelu_erf"), y, dx);
  }
  launch_here(SwigluForward{.gate = x.view(), .up = dy.view(), .y = y.view()});
  Values dup({count}, dtype);
  launch_here(SwigluBackward{
      .gate = x.view(), .up = dy.view(), .dy = dy.view(), .dgate = dx.view(), .dup = dup.view()});
  print_line(label("swiglu"), y, dx, dup);
  launch_here(TanhForward{.x = x.view(), .y = y.view()});
  launch_here(TanhBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
  print_line(label("tanh"), y, dx);
  launch_here(ReluForward{.x = x.view(), .y = y.view()});
  launch_here(ReluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view()});
  print_line(label("relu"), y, dx);
  launch_here(Exp{.x = x.view(), .y = y.view()});
  launch_here(Log{.x = sizes.view(), .y = dx.view()});
  print_line(label("exp_log"), y, dx);
  launch_here(SigmoidForward{.x = x.view(), .y = y.view()});
  launch_here(SigmoidBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
  print_line(label("sigmoid"), y, dx);
  launch_here(SiluForward{.x = x.view(), .y = y.view()});
  launch_here(SiluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view()});
  print_line(label("silu"), y, dx);
  launch_here(Sqrt{.x = sizes.view(), .y = y.view()});
  launch_here(Rsqrt{.x = sizes.view(), .y = dx.view()});
  print_line(label("sqrt_rsqrt"), y, dx);
  launch_here(Power{.a = sizes.view(), .b = dy.view(), .y = y.view()});
  launch_here(Power{.a = sizes.view(), .b = {0.7, dtype}, .y = dx.view()});
  print_line(label("pow"), y, dx);
  Values place({1}, DType::i32), largest({1}, dtype);
  launch_here(DimensionExtreme{.extreme = Extreme::largest,
                               .x = x.view(),
                               .y = largest.view(),
                               .places = place.view(),
                               .count = count});
  launch_here(Maximum{.a = x.view(), .b = dy.view(), .y = y.view()});
  launch_here(Compare{.comparison = Comparison::less, .a = x.view(), .b = dy.view(), .y = dx.view()});
  print_line(label("comparison"), y, dx, largest, place);
  launch_here(Scale{.x = x.view(), .y = y.view(), .factor = 0.7});
  Values factor({1}, accumulator_dtype(dtype));
  factor.set(0, 1.3);
  launch_here(ScaleBy{.x = x.view(), .factor = factor.view(), .y = dx.view()});
  print_line(label("scale"), y, dx);
  const auto as_sample = [&](Values& values) { return View{values.view().data, {1, count}, dtype}; };
  launch_here(Dropout{.x = as_sample(x),
                      .y = as_sample(y),
                      .probability = 0.2,
                      .key = {.seed = 4, .step = 3, .sample = 2, .site = 1}});
  print_line(label("dropout"), y);
  launch_here(FillNormal{.y = y.view(), .mean = 0.1, .std = 0.02, .seed = 5, .stream_id = 6, .first = 3});
  launch_here(FillUniform{.y = dx.view(), .low = -0.3, .high = 0.3, .seed = 7, .stream_id = 8, .first = 1});
  print_line(label("fill"), y, dx);
  for (const DType to : float_types) {
    Values converted({count}, to);
    launch_here(Convert{.x = x.view(), .y = converted.view()});
    print_line(label("convert") + concat(" to ", to), converted);
  }
}

void print_arithmetic(DType dtype) {
  Values a = spread({3, 5, 33}, dtype, 9), b = spread({5, 1}, dtype, 10), y({3, 5, 33}, dtype);
  const auto print = [&](const auto& kernel) {
    launch_here(kernel);
    print_line(concat(kernel.name, " ", dtype), y);
  };
  print(Add{.a = a.view(), .b = b.view(), .y = y.view()});
  print(Subtract{.a = a.view(), .b = b.view(), .y = y.view()});
  print(Multiply{.a = a.view(), .b = b.view(), .y = y.view()});
  Values divisors = positive({5, 1}, dtype, 11);
  launch_here(Scale{.x = divisors.view(), .y = divisors.view(), .factor = 1.0});
  for (int64_t i = 0; i < 5; ++i)
    with_float_type(
        dtype, [&]<class T>() { divisors.view().as<T>()[i] = static_cast<T>(static_cast<float>(i) + 0.7f); });
  print(Divide{.a = a.view(), .b = divisors.view(), .y = y.view()});
  Values turned({33, 5, 3}, dtype);
  launch_here(Transpose{.x = a.view(), .y = turned.view(), .first = 0, .second = 2});
  print_line(concat("transpose ", dtype), turned);
}

void print_optimizers(int64_t count, DType dtype) {
  Values p = uniform({count}, dtype, 12), g = spread({count}, dtype, 13, -40, 2), copy({count}, DType::bf16);
  Values first = spread({count}, dtype, 14, -30, 0), second = positive({count}, dtype, 15, -60, 0),
         velocity = uniform({count}, dtype, 16);
  AdamWStep step{.slices = {{.parameter = p.view(),
                             .gradient = g.view(),
                             .first_moment = first.view(),
                             .second_moment = second.view(),
                             .weight_decay = 0.1,
                             .compute_copy = copy.view()}},
                 .gradient_scale = 0.5f};
  for (const int64_t number : {1, 2, 300}) {
    step.step = number;
    launch_here(step);
    print_line(concat("adamw ", dtype, " ", count, " step ", number), p, first, second, copy);
  }
  launch_here(SgdStep{.parameter = p.view(),
                      .gradient = g.view(),
                      .learning_rate = 0.1,
                      .weight_decay = 0.01,
                      .momentum = 0.9,
                      .velocity = velocity.view()});
  print_line(concat("sgd ", dtype, " ", count), p, velocity);
}

/// Prints the schedule that captured steps read instead of the learning rate and the step.
void print_schedule() {
  Values step({1}, DType::i32), schedule({3}, DType::f64);
  for (const int number : {1, 2, 17, 1000, 1'000'000}) {
    step.set(0, number);
    schedule.set(0, 1e-3);
    launch_here(AdamWSchedule{.step = step.view(), .schedule = schedule.view(), .beta2 = 0.95});
    print_line(concat("adamw_schedule ", number), schedule);
  }
}

void print_fold(int64_t count) {
  Values a = spread({count}, DType::f32, 17), b = spread({count}, DType::f32, 18),
         c = spread({count}, DType::f32, 19), y({count}, DType::f32);
  launch_here(Fold{.inputs = {a.view(), b.view(), c.view()},
                   .program = {0, 1, 2, Fold::add, Fold::add},
                   .y = y.view(),
                   .scale = 0.1f});
  print_line(concat("fold ", count), y);
}

void print_elementary() {
  Values x = spread({4000}, DType::f64, 20, -60, 9), sizes = positive({4000}, DType::f64, 21, -1080, 1020),
         y({4000, 6}, DType::f64);
  double* to = y.view().as<double>();
  for (int64_t i = 0; i < 4000; ++i, to += 6) {
    const double value = x.view().as<double>()[i];
    to[0] = math::exp(value);
    to[1] = math::log(sizes.view().as<double>()[i]);
    to[2] = math::sin_of_turns(value);
    to[3] = math::cos_of_turns(value);
    to[4] = math::tanh(value);
    to[5] = math::erf(value);
  }
  print_line("elementary f64", y);
}

}  // namespace

void print_elements() {
  print_elementary();
  print_schedule();
  for (const int64_t count : counts) {
    for (const DType dtype : float_types) print_functions(count, dtype);
    for (const DType dtype : {DType::f32, DType::f64}) print_optimizers(count, dtype);
    print_fold(count);
  }
  for (const DType dtype : float_types) print_arithmetic(dtype);
}

}  // namespace lockstep::bits
