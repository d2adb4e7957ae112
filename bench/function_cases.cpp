// SPDX-License-Identifier: Apache-2.0
// Operations of users' own models: functions, masks, extremes and joined rows.
#include "kernel_cases.h"
#include "lockstep/kernels/comparison.h"
#include "lockstep/kernels/copy_rows.h"
#include "lockstep/kernels/extreme.h"
#include "lockstep/kernels/power.h"
#include "lockstep/kernels/sigmoid.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

template <class K>
Work function_of(const Shape& shape, DType dtype) {
  const Tensor x = exp(random_tensor(shape, dtype)), y = empty(shape, dtype);
  return moving(K{x.view(), y.view()}, {x, y});
}

template <class K>
Work gradient_of(const Shape& shape, DType dtype) {
  const Tensor x = random_tensor(shape, dtype), dy = random_tensor(shape, dtype), dx = empty(shape, dtype);
  return moving(K{x.view(), dy.view(), dx.view()}, {x, dy, dx});
}

/// Computes with a tensor of the same shape, or with a number.
template <class K>
Work pair_with(const Shape& shape, DType dtype, bool is_number) {
  const Tensor a = exp(random_tensor(shape, dtype)), b = random_tensor(shape, dtype), y = empty(shape, dtype);
  K kernel;
  kernel.a = a.view();
  kernel.b = is_number ? OperandView(0.7, dtype) : OperandView(b.view());
  kernel.y = y.view();
  return moving(kernel, {a, b, y});
}

Work where(const Shape& shape, DType dtype) {
  const Tensor mask = relu(random_tensor(shape, dtype)), a = random_tensor(shape, dtype),
               y = empty(shape, dtype);
  return moving(Where{.mask = mask.view(), .a = a.view(), .b = {0.0, dtype}, .y = y.view()}, {mask, a, y});
}

Work largest(const Shape& rows, DType dtype) {
  const Tensor x = random_tensor(rows, dtype), y = empty({rows[0]}, dtype),
               places = empty({rows[0]}, DType::i32);
  return moving(DimensionExtreme{.x = x.view(), .y = y.view(), .places = places.view(), .count = rows[1]},
                {x, y, places});
}

/// Copies the middle half of each row.
Work cut(const Shape& rows, DType dtype) {
  const int64_t half = rows[1] / 2;
  const Tensor x = random_tensor(rows, dtype), y = empty({rows[0], half}, dtype);
  return moving(CopyRows{.x = x.view(),
                         .y = y.view(),
                         .rows = rows[0],
                         .length = half,
                         .x_stride = rows[1],
                         .y_stride = half},
                {x, y});
}

}  // namespace

std::vector<KernelCase> function_cases(const CaseSizes& sizes) {
  std::vector<KernelCase> cases;
  const DType dtype = sizes.dtype;
  for (const LlamaSize& size : sizes.llamas) {
    const Shape shape = size.mlp();
    const auto add_case = [&](const char* kernel, std::function<Work()> prepare) {
      cases.push_back({kernel, text_of(shape), std::move(prepare)});
    };
    add_case("sigmoid_forward", [=] { return function_of<SigmoidForward>(shape, dtype); });
    add_case("silu_forward", [=] { return function_of<SiluForward>(shape, dtype); });
    add_case("silu_backward", [=] { return gradient_of<SiluBackward>(shape, dtype); });
    add_case("sqrt", [=] { return function_of<Sqrt>(shape, dtype); });
    add_case("pow", [=] { return pair_with<Power>(shape, dtype, false); });
    add_case("pow_number", [=] { return pair_with<Power>(shape, dtype, true); });
    add_case("add_number", [=] { return pair_with<Add>(shape, dtype, true); });
    add_case("maximum", [=] { return pair_with<Maximum>(shape, dtype, false); });
    add_case("less_number", [=] { return pair_with<Compare>(shape, dtype, true); });
    add_case("where", [=] { return where(shape, dtype); });
    add_case("max_of_rows", [=] { return largest(shape, dtype); });
    add_case("slice_of_rows", [=] { return cut(shape, dtype); });
  }
  return cases;
}

}  // namespace lockstep
