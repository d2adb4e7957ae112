// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/grad_scale.h"
#include "lockstep/kernels/sgd.h"

namespace lockstep::predicted {
namespace {

AdamWSlice slice_of(Arrays& a, int64_t count, double decay, DType copy_dtype) {
  return {.parameter = a.updated(a.input({count}, DType::f32)),
          .gradient = a.input({count}, DType::f32, 0.01),
          .first_moment = a.updated(a.input({count}, DType::f32, 0.01)),
          .second_moment = a.updated(a.positive({count}, DType::f32, 1e-4)),
          .weight_decay = decay,
          .compute_copy = copy_dtype == DType::f32 ? View{} : a.output({count}, copy_dtype)};
}

void add_adamw(Cases& cases) {
  for (const DType copy : float_dtypes)
    add(cases, DType::f32, concat("two slices and copies in ", copy), [=](Arrays& a) {
      return AdamWStep{
          .slices = {slice_of(a, 1500, 0.1, copy), slice_of(a, 77, 0.0, copy)}, .step = 3, .clip = {}};
    });
  add(cases, DType::f32, "schedule and clip in memory", [](Arrays& a) {
    AdamWStep step{.slices = {slice_of(a, 600, 0.1, DType::bf16)}};
    step.schedule = a.updated(a.positive({3}, DType::f64));
    launch(a.stream(), AdamWSchedule{.step = a.integers({5}), .schedule = step.schedule});
    step.clip = a.number(0.6, DType::f32);
    return step;
  });
}

void add_schedule(Cases& cases) {
  for (const int32_t step : {0, 1, 1000})
    add(cases, DType::f64, concat("step ", step), [=](Arrays& a) {
      return AdamWSchedule{.step = a.integers({step}), .schedule = a.updated(a.positive({3}, DType::f64))};
    });
}

void add_sgd(Cases& cases) {
  for (const double momentum : {0.0, 0.9})
    for (const int64_t count : {1001, 4096})
      add(cases, DType::f32, concat("momentum ", momentum, " ", count), [=](Arrays& a) {
        return SgdStep{.parameter = a.updated(a.input({count}, DType::f32)),
                       .gradient = a.input({count}, DType::f32, 0.01),
                       .learning_rate = 0.1,
                       .weight_decay = 0.01,
                       .momentum = momentum,
                       .velocity = momentum > 0 ? a.updated(a.input({count}, DType::f32, 0.01)) : View{},
                       .clip = a.number(0.8, DType::f32)};
      });
}

void add_counters(Cases& cases) {
  add(cases, DType::i32, "a good step that grows the scale", [](Arrays& a) {
    return UpdateGradScale{.state = a.updated(a.integers({0x47800000, 1999, 2})),  // 65536.0f
                           .factor = a.number(0.5, DType::f32),
                           .rule = {}};
  });
  add(cases, DType::i32, "one more step", [](Arrays& a) {
    return CountStep{.count = a.updated(a.integers({41})), .factor = a.number(1.0, DType::f32)};
  });
  add(cases, DType::i32, "beyond 2^32",
      [](Arrays& a) { return SetStep{.y = a.output({1}, DType::i32), .value = (int64_t{1} << 32) + 7}; });
  add(cases, DType::f64, "two values", [](Arrays& a) {
    return SetValues{.y = a.output({3}, DType::f64), .values = {0.1, 0.2}, .count = 2};
  });
}

}  // namespace

Cases update_cases() {
  Cases cases;
  add_adamw(cases);
  add_schedule(cases);
  add_sgd(cases);
  add_counters(cases);
  return cases;
}

}  // namespace lockstep::predicted
