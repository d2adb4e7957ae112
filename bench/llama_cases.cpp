// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernel_cases.h"
#include "kernels/layer_norm.h"
#include "kernels/rotary.h"
#include "kernels/swiglu.h"

namespace lockstep {
namespace {

Work rms_norm_forward(const Shape& shape, DType dtype, bool has_residual) {
  const Tensor x = random_tensor(shape, dtype), weight = random_tensor({shape[-1]}, dtype);
  const Tensor y = empty(shape, dtype), rstd = empty({shape.rows()}, accumulator_dtype(dtype));
  LayerNormForward kernel{.x = x.view(), .weight = weight.view(), .y = y.view(), .rstd = rstd.view()};
  std::vector<Tensor> operands{x, weight, y, rstd};
  if (has_residual) {
    operands.push_back(random_tensor(shape, dtype));
    kernel.residual = operands.back().view();
    operands.push_back(empty(shape, dtype));
    kernel.sum = operands.back().view();
  }
  return moving(kernel, operands);
}

/// With has_carried, dx is added to the gradient that x has from the residual stream.
Work rms_norm_backward(const Shape& shape, DType dtype, bool has_carried) {
  const Tensor x = random_tensor(shape, dtype), weight = random_tensor({shape[-1]}, dtype);
  const Tensor rstd = full({shape.rows()}, 1.0, accumulator_dtype(dtype));
  const Tensor dy = random_tensor(shape, dtype), dx = empty(shape, dtype);
  const Tensor dweight = empty({shape[-1]}, accumulator_dtype(dtype));
  const Tensor carried = has_carried ? random_tensor(shape, dtype) : Tensor();
  std::vector<Tensor> operands{x, weight, rstd, dy, dx, dweight};
  if (has_carried) operands.push_back(carried);
  return moving(LayerNormBackward{.x = x.view(),
                                  .weight = weight.view(),
                                  .rstd = rstd.view(),
                                  .dy = dy.view(),
                                  .carried = carried.view(),
                                  .dx = dx.view(),
                                  .dweight = dweight.view()},
                operands);
}

Tensor rotary_table(int64_t tokens, int64_t size, DType dtype) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < size / 2; ++i)
    frequencies.push_back(std::pow(500000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(size)));
  const Tensor frequency = from_values(frequencies, {size / 2});
  const Tensor table = empty({tokens, size}, accumulator_dtype(dtype));
  launch(current_stream(), RotaryTable{.frequencies = frequency.view(), .y = table.view()});
  return table;
}

Work rotary_table_work(const LlamaSize& size) {
  const Tensor frequency = random_tensor({size.size / 2}, DType::f32);
  const Tensor table = empty({size.tokens, size.size}, DType::f32);
  return moving(RotaryTable{.frequencies = frequency.view(), .y = table.view()}, {frequency, table});
}

/// Rotates heads into another array, as a training step does.
Work rotate(const LlamaSize& size, int64_t heads, DType dtype) {
  const Tensor x = random_tensor({size.tokens, heads * size.size}, dtype), y = empty_like(x);
  const Tensor table = rotary_table(size.tokens, size.size, dtype);
  return moving(Rotate{.x = x.view(), .table = table.view(), .y = y.view()}, {x, table, y});
}

Work swiglu_forward(const Shape& shape, DType dtype) {
  const Tensor gate = random_tensor(shape, dtype), up = random_tensor(shape, dtype), y = empty(shape, dtype);
  return moving(SwigluForward{.gate = gate.view(), .up = up.view(), .y = y.view()}, {gate, up, y});
}

Work swiglu_backward(const Shape& shape, DType dtype) {
  const Tensor gate = random_tensor(shape, dtype), up = random_tensor(shape, dtype);
  const Tensor dy = random_tensor(shape, dtype), dgate = empty(shape, dtype), dup = empty(shape, dtype);
  return moving(
      SwigluBackward{
          .gate = gate.view(), .up = up.view(), .dy = dy.view(), .dgate = dgate.view(), .dup = dup.view()},
      {gate, up, dy, dgate, dup});
}

}  // namespace

std::vector<KernelCase> llama_cases(const CaseSizes& sizes) {
  std::vector<KernelCase> cases;
  const DType dtype = sizes.dtype;
  const auto add_case = [&](const char* kernel, const std::string& shape, std::function<Work()> prepare) {
    cases.push_back({kernel, shape, std::move(prepare)});
  };
  for (const LlamaSize& size : sizes.llamas) {
    const Shape rows = size.rows(), queries = size.queries(), mlp = size.mlp();
    add_case("rms_norm_forward", text_of(rows), [=] { return rms_norm_forward(rows, dtype, false); });
    add_case("rms_norm_residual", text_of(rows), [=] { return rms_norm_forward(rows, dtype, true); });
    add_case("rms_norm_backward", text_of(rows), [=] { return rms_norm_backward(rows, dtype, true); });
    add_case("query_norm_forward", text_of(queries), [=] { return rms_norm_forward(queries, dtype, false); });
    add_case("query_norm_backward", text_of(queries),
             [=] { return rms_norm_backward(queries, dtype, false); });
    add_case("rotary_table", text_of({size.tokens, size.size}), [=] { return rotary_table_work(size); });
    for (const int64_t heads : {size.heads, size.key_heads})
      add_case("rotate", text_of({size.tokens, heads, size.size}),
               [=] { return rotate(size, heads, dtype); });
    add_case("swiglu_forward", text_of(mlp), [=] { return swiglu_forward(mlp, dtype); });
    add_case("swiglu_backward", text_of(mlp), [=] { return swiglu_backward(mlp, dtype); });
  }
  return cases;
}

}  // namespace lockstep
