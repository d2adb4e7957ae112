// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/ops.h"
#include "support/function_cases.h"
#include "support/gradient_check.h"

namespace lockstep {

inline constexpr RandomKey op_case_key{.seed = 5, .step = 7, .sample = 11, .site = 2};

/// Returns targets for logits [rows, classes]. Every fifth is ignored.
inline Tensor targets_for(int64_t rows, int64_t classes) {
  std::vector<int32_t> targets = random_id_values(rows, classes, 50);
  for (size_t i = 2; i < targets.size(); i += 5) targets[i] = -1;
  return from_values(targets, {rows});
}

/// Returns ids for a table. Three of four are among a few rows, so some rows are used several times and some
/// never.
inline Tensor ids_for(const Tensor& table) {
  const int64_t rows = table.shape()[0];
  std::vector<int32_t> ids = random_id_values(3 * rows, rows, 51);
  for (size_t i = 0; i < ids.size(); ++i)
    if (i % 4 != 0) ids[i] %= 3;
  return from_values(ids, {3, rows});
}

inline std::vector<OpCase> elementwise_cases() {
  const Shape small{3, 1, 7}, large{3, 70, 191};
  return {
      {"add", {small, small}, {large, large}, 2, [](const Tensors& in) { return add(in[0], in[1]); }},
      {"add_same", {small}, {large}, 2, [](const Tensors& in) { return add(in[0], in[0]); }},
      {"subtract",
       {small, small},
       {large, large},
       2,
       [](const Tensors& in) { return subtract(in[0], in[1]); }},
      {"multiply",
       {small, small},
       {large, large},
       2,
       [](const Tensors& in) { return multiply(in[0], in[1]); }},
      {"multiply_same", {small}, {large}, 2, [](const Tensors& in) { return multiply(in[0], in[0]); }},
      {"scale", {small}, {large}, 1, [](const Tensors& in) { return scale(in[0], -1.7); }},
      {"relu", {small}, {large}, 1, [](const Tensors& in) { return relu(in[0]); }},
      {"tanh", {small}, {large}, 4, [](const Tensors& in) { return tanh(in[0]); }},
      {"gelu_tanh", {small}, {large}, 8, [](const Tensors& in) { return gelu(in[0], Gelu::tanh); }},
      {"gelu_erf", {small}, {large}, 8, [](const Tensors& in) { return gelu(in[0], Gelu::erf); }},
      {"swiglu", {small, small}, {large, large}, 8, [](const Tensors& in) { return swiglu(in[0], in[1]); }},
      {"convert",
       {small},
       {large},
       1,
       [](const Tensors& in) {
         return convert(in[0], in[0].dtype() == DType::f64 ? DType::f64 : DType::f32);
       }},
      {"dropout", {small}, {large}, 1, [](const Tensors& in) { return dropout(in[0], 0.3, op_case_key); }},
      {"sum", {small}, {large}, 21, [](const Tensors& in) { return sum(in[0]); }},
      {"mean", {small}, {large}, 21, [](const Tensors& in) { return mean(in[0]); }},
      {"mean_squared_error",
       {small, small},
       {large, large},
       21,
       [](const Tensors& in) { return mean_squared_error(in[0], in[1]); }},
      {"reshape",
       {small},
       {large},
       1,
       [](const Tensors& in) {
         return in[0].reshape({-1, 1});
       }},
  };
}

/// Returns cases in which one of two shapes is broadcast to the other's.
inline std::vector<OpCase> broadcast_cases() {
  const auto log_of_exponentials = [](const Tensors& in) {
    return log(add(exp(in[0]), full({}, 0.5, in[0].dtype(), in[0].stream())));
  };
  // The divisor is an exponential, which is never near zero.
  const auto quotient = [](const Tensors& in) { return divide(in[0], exp(in[1])); };
  const Shape small{3, 1, 7}, column{5, 1}, large{3, 70, 191}, large_column{70, 1};
  return {
      {"add_broadcast",
       {small, column},
       {large, large_column},
       24,
       [](const Tensors& in) { return add(in[0], in[1]); },
       {1}},
      {"add_scalar", {{}, small}, {{}, large}, 24, [](const Tensors& in) { return add(in[0], in[1]); }},
      {"subtract_broadcast",
       {{7}, {3, 5, 7}},
       {{191}, large},
       18,
       [](const Tensors& in) { return subtract(in[0], in[1]); }},
      {"multiply_broadcast",
       {{2, 1, 3, 1}, {4, 1, 5}},
       {{9, 1, 30, 1}, {40, 1, 65}},
       24,
       [](const Tensors& in) { return multiply(in[0], in[1]); },
       {0}},
      {"divide", {small, small}, {large, large}, 16, quotient},
      {"divide_broadcast", {small, {5, 1}}, {large, {1, 1}}, 40, quotient},
      {"divide_scalar", {{}, small}, {{}, large}, 40, quotient},
      {"exp", {small}, {large}, 6, [](const Tensors& in) { return exp(in[0]); }},
      {"log", {small}, {large}, 12, log_of_exponentials},
  };
}

inline std::vector<OpCase> dimension_cases() {
  const Shape small{3, 4, 7}, large{3, 1100, 70}, four{2, 3, 4, 5}, large_four{3, 70, 4, 33};
  return {
      {"sum_first", {small}, {large}, 8, [](const Tensors& in) { return sum(in[0], 0); }},
      {"sum_middle", {small}, {large}, 8, [](const Tensors& in) { return sum(in[0], -2, true); }},
      {"sum_last", {small}, {large}, 12, [](const Tensors& in) { return sum(in[0], 2); }},
      {"mean_middle", {small}, {large}, 8, [](const Tensors& in) { return mean(in[0], 1); }},
      {"mean_last", {small}, {large}, 12, [](const Tensors& in) { return mean(in[0], -1, true); }},
      {"softmax", {small}, {large}, 16, [](const Tensors& in) { return softmax(in[0]); }},
      {"softmax_first", {small}, {large}, 16, [](const Tensors& in) { return softmax(in[0], 0); }},
      {"transpose", {small}, {large}, 1, [](const Tensors& in) { return transpose(in[0]); }},
      {"transpose_middle",
       {four},
       {large_four},
       1,
       [](const Tensors& in) { return transpose(in[0], 1, -2); }},
      {"transpose_ends", {four}, {large_four}, 1, [](const Tensors& in) { return transpose(in[0], -1, 0); }},
  };
}

inline std::vector<OpCase> product_cases() {
  const Shape x{2, 3, 5}, weight{7, 5}, bias{7};
  const Shape large_x{3, 61, 129}, large_weight{200, 129}, large_bias{200};
  const Shape up{5, 7}, down{7, 5}, bias_down{5};
  const Shape large_up{129, 200}, large_down{200, 129}, large_bias_down{129};
  const auto with_gelu = [](Gelu form) {
    return [form](const Tensors& in) {
      if (in.size() == 3) return feed_forward(in[0], {in[1], {}, in[2], {}}, form);
      return feed_forward(in[0], {in[1], in[2], in[3], in[4]}, form, in.size() > 5 ? in[5] : Tensor());
    };
  };
  return {
      {"linear",
       {x, weight, bias},
       {large_x, large_weight, large_bias},
       7,
       [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
       {1, 2}},
      {"linear_no_bias",
       {x, weight},
       {large_x, large_weight},
       7,
       [](const Tensors& in) { return linear(in[0], in[1]); },
       {1}},
      {"linear_one_row",
       {{5}, weight, bias},
       {{129}, large_weight, large_bias},
       7,
       [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
       {1, 2}},
      {"linear_residual",
       {x, weight, bias, {2, 3, 7}},
       {large_x, large_weight, large_bias, {3, 61, 200}},
       8,
       [](const Tensors& in) { return linear(in[0], in[1], in[2], in[3]); },
       {1, 2}},
      {"linear_in_out",
       {x, up, bias, {2, 3, 7}},
       {large_x, large_up, large_bias, {3, 61, 200}},
       8,
       [](const Tensors& in) { return linear(in[0], in[1], in[2], in[3], WeightOrder::in_out); },
       {1, 2}},
      {"feed_forward_tanh",
       {x, up, bias, down, bias_down, x},
       {large_x, large_up, large_bias, large_down, large_bias_down, large_x},
       24,
       with_gelu(Gelu::tanh),
       {1, 2, 3, 4}},
      {"feed_forward_erf",
       {x, up, bias, down, bias_down},
       {large_x, large_up, large_bias, large_down, large_bias_down},
       24,
       with_gelu(Gelu::erf),
       {1, 2, 3, 4}},
      {"feed_forward_no_bias",
       {x, up, down},
       {large_x, large_up, large_down},
       24,
       with_gelu(Gelu::tanh),
       {1, 2}},
      {"matmul",
       {{4, 5}, {5, 3}},
       {{183, 129}, {129, 200}},
       5,
       [](const Tensors& in) { return matmul(in[0], in[1]); }},
      {"matmul_one_matrix",
       {{2, 3, 4}, {4, 5}},
       {{3, 61, 129}, {129, 65}},
       8,
       [](const Tensors& in) { return matmul(in[0], in[1]); },
       {1}},
      {"matmul_batch",
       {{2, 3, 4, 5}, {2, 3, 5, 2}},
       {{2, 5, 31, 33}, {2, 5, 33, 17}},
       8,
       [](const Tensors& in) { return matmul(in[0], in[1]); }},
      {"matmul_broadcast",
       {{2, 1, 4, 5}, {3, 5, 2}},
       {{2, 1, 150, 130}, {3, 130, 140}},
       16,
       [](const Tensors& in) { return matmul(in[0], in[1]); },
       {1}},
  };
}

inline std::vector<OpCase> model_cases() {
  const auto attention = [](double dropout) {
    return [dropout](const Tensors& in) {
      return causal_attention(in[0], in[0].shape()[2] == 18 ? 2 : 4, dropout, op_case_key);
    };
  };
  const auto head_loss = [](int64_t rows_at_once) {
    return [rows_at_once](const Tensors& in) {
      const Tensor targets = targets_for(in[0].shape().rows(), in[1].shape()[0]);
      return linear_cross_entropy(in[0], in[1], targets, rows_at_once);
    };
  };
  return {
      {"layer_norm",
       {{2, 3, 9}, {9}, {9}},
       {{7, 57, 97}, {97}, {97}},
       18,
       [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); },
       {1, 2}},
      {"layer_norm_no_bias",
       {{4, 9}, {9}},
       {{399, 97}, {97}},
       18,
       [](const Tensors& in) { return layer_norm(in[0], in[1], {}); },
       {1}},
      {"add_layer_norm",
       {{2, 3, 9}, {2, 3, 9}, {9}, {9}},
       {{7, 57, 97}, {7, 57, 97}, {97}, {97}},
       24,
       [](const Tensors& in) {
         const auto [sum, norm] = add_layer_norm(in[0], in[1], in[2], in[3]);
         return multiply(sum, norm);
       },
       {2, 3}},
      {"rms_norm",
       {{2, 3, 9}, {9}},
       {{7, 57, 97}, {97}},
       18,
       [](const Tensors& in) { return rms_norm(in[0], in[1]); },
       {1}},
      {"add_rms_norm",
       {{2, 3, 9}, {2, 3, 9}, {9}},
       {{7, 57, 97}, {7, 57, 97}, {97}},
       24,
       [](const Tensors& in) {
         const auto [sum, norm] = add_rms_norm(in[0], in[1], in[2], 1e-3);
         return multiply(sum, norm);
       },
       {2}},
      {"rotate",
       {{2, 3, 12}},
       {{9, 70, 204}},
       2,
       [](const Tensors& in) {
         const int64_t half = in[0].shape()[2] / 4, tokens = in[0].shape()[1];  // two heads
         const Tensor frequencies = uniform_tensor({half}, 3, accumulator_dtype(in[0].dtype()));
         return rotate(in[0], rotary_table(to_stream(frequencies, in[0].stream()), tokens));
       }},
      {"embedding",
       {{6, 5}},
       {{700, 130}},
       14,
       [](const Tensors& in) { return embedding(ids_for(in[0]), in[0]); },
       {0}},
      {"add_positions",
       {{3, 4, 5}, {6, 5}},
       {{9, 70, 65}, {80, 65}},
       3,
       [](const Tensors& in) { return add_positions(in[0], in[1]); },
       {1}},
      {"causal_attention", {{2, 7, 18}}, {{3, 70, 204}}, 24, attention(0.0)},
      {"causal_attention_dropout", {{2, 7, 18}}, {{3, 70, 204}}, 24, attention(0.3)},
      {"causal_attention_grouped",
       {{2, 7, 24}},
       {{3, 70, 136}},
       48,
       [](const Tensors& in) {
         return causal_attention(in[0], {4, 2}, 0.3, op_case_key);
       }},
      {"causal_attention_apart",
       {{2, 7, 12}, {2, 7, 6}, {2, 7, 6}},
       {{3, 70, 68}, {3, 70, 34}, {3, 70, 34}},
       48,
       [](const Tensors& in) {
         return causal_attention(in[0], in[1], in[2], {4, 2}, 0.3, op_case_key);
       }},
      {"cross_entropy",
       {{2, 4, 9}},
       {{5, 60, 131}},
       16,
       [](const Tensors& in) {
         return cross_entropy(in[0], targets_for(in[0].shape().rows(), in[0].shape()[-1]));
       }},
      {"linear_cross_entropy", {{2, 4, 5}, {9, 5}}, {{5, 60, 30}, {131, 30}}, 24, head_loss(0), {1}},
      {"linear_cross_entropy_pieces", {{2, 4, 5}, {9, 5}}, {{5, 60, 30}, {131, 30}}, 24, head_loss(3), {1}},
  };
}

inline std::vector<OpCase> all_cases() {
  std::vector<OpCase> all = elementwise_cases();
  for (const auto& more : {broadcast_cases(), function_cases(), dimension_cases(), part_cases(),
                           parameter_cases(), product_cases(), model_cases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The leaves of a case, and the space of those that are parameters in 16 bits.
struct Inputs {
  Tensors tensors;
  std::unique_ptr<ParameterSpace> parameters;
};

/// Returns inputs in `dtype`, whose values are rounded to the dtype `numbers`. They are away from zero, where
/// relu has no slope.
inline Inputs make_inputs(const OpCase& op, const std::vector<Shape>& shapes, DType dtype, DType numbers) {
  Inputs inputs;
  std::vector<NamedTensor> parameters;
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<float> values;
    for (const double value : to_doubles(uniform_tensor(shapes[i], static_cast<uint32_t>(i), DType::f32)))
      values.push_back(static_cast<float>(value) + std::copysign(0.05f, static_cast<float>(value)));
    const bool is_parameter = op.parameters.contains(i);
    const Tensor rounded = convert(from_values(values, shapes[i]), numbers);
    inputs.tensors.push_back(convert(rounded, is_parameter ? accumulator_dtype(dtype) : dtype));
    inputs.tensors.back().set_requires_grad();
    if (is_parameter) parameters.push_back({concat("input ", i), inputs.tensors.back()});
  }
  if (accumulator_dtype(dtype) == dtype || parameters.empty()) return inputs;
  inputs.parameters = std::make_unique<ParameterSpace>(parameters);
  inputs.parameters->set_precision(dtype);
  return inputs;
}
inline Tensors make_inputs(const std::vector<Shape>& shapes, DType dtype) {
  return make_inputs(OpCase{}, shapes, dtype, dtype).tensors;
}

/// Returns a scalar that weights every element of y differently, so that a test can tell all gradients apart.
inline Tensor weighted_sum(const Tensor& y, DType numbers) {
  return sum(multiply(y, convert(uniform_tensor(y.shape(), 99, numbers), y.dtype())));
}
inline Tensor weighted_sum(const Tensor& y) { return weighted_sum(y, y.dtype()); }

}  // namespace lockstep
