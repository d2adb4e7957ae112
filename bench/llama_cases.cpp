// SPDX-License-Identifier: Apache-2.0
#include "kernel_cases.h"
#include "lockstep/kernels/rotary.h"
#include "lockstep/kernels/swiglu.h"
#include "lockstep/models/llama/rotary_frequencies.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

Work rotary_table_work(const LlamaSize& size) {
  const Tensor frequency = random_tensor({size.size / 2}, DType::f32);
  const Tensor table = empty({size.tokens, size.size}, DType::f32);
  return moving(RotaryTable{.frequencies = frequency.view(), .y = table.view()}, {frequency, table});
}

/// Rotates heads into another array, as a training step does.
Work rotate(const LlamaSize& size, int64_t heads, DType dtype) {
  const Tensor x = random_tensor({size.tokens, heads * size.size}, dtype), y = empty_like(x);
  const std::vector<float> frequencies = rotary_frequencies(size.size, {.theta = 5e5});
  const Tensor table = rotary_table(from_values(frequencies, {size.size / 2}), size.tokens);
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
    add_case("rms_norm_forward", text_of(rows),
             [=] { return norm_forward(NormKind::rms, rows, dtype, false); });
    add_case("rms_norm_residual", text_of(rows),
             [=] { return norm_forward(NormKind::rms, rows, dtype, true); });
    add_case("rms_norm_backward", text_of(rows),
             [=] { return norm_backward(NormKind::rms, rows, dtype, true); });
    add_case("query_norm_forward", text_of(queries),
             [=] { return norm_forward(NormKind::rms, queries, dtype, false); });
    add_case("query_norm_backward", text_of(queries),
             [=] { return norm_backward(NormKind::rms, queries, dtype, false); });
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
