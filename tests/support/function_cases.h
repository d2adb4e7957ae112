// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "lockstep/tensor/ops.h"

namespace lockstep {

using Tensors = std::vector<Tensor>;

struct OpCase {
  std::string name;          ///< as in ops.h, then "_" and a variant
  std::vector<Shape> small;  ///< shapes of the inputs, with odd extents
  std::vector<Shape> large;  ///< shapes that need several chunks of every kernel
  int64_t additions = 1;     ///< additions in the longest chain of an element or a gradient, small shapes
  std::function<Tensor(const Tensors&)> function;
  std::set<size_t> parameters = {};  ///< inputs that stay fp32 in 16-bit cases; read from a copy

  friend std::ostream& operator<<(std::ostream& out, const OpCase& op) { return out << op.name; }
};

/// Returns cases of functions with a kink or a mask, of powers and of operands that are numbers.
inline std::vector<OpCase> function_cases() {
  const Shape small{3, 1, 7}, column{5, 1}, large{3, 70, 191}, large_column{70, 1};
  // Bases and radicands are exponentials, which are never near zero.
  return {
      {"sigmoid", {small}, {large}, 8, [](const Tensors& in) { return sigmoid(in[0]); }},
      {"silu", {small}, {large}, 8, [](const Tensors& in) { return silu(in[0]); }},
      {"sqrt", {small}, {large}, 12, [](const Tensors& in) { return sqrt(exp(in[0])); }},
      {"rsqrt", {small}, {large}, 16, [](const Tensors& in) { return rsqrt(exp(in[0])); }},
      {"pow_number", {small}, {large}, 16, [](const Tensors& in) { return pow(exp(in[0]), 1.7); }},
      {"pow_square", {small}, {large}, 4, [](const Tensors& in) { return pow(in[0], 2.0); }},
      {"pow_inverse", {small}, {large}, 16, [](const Tensors& in) { return pow(exp(in[0]), -1.0); }},
      {"pow_of_number", {small}, {large}, 12, [](const Tensors& in) { return pow(1.5, in[0]); }},
      {"pow_broadcast",
       {small, column},
       {large, large_column},
       64,
       [](const Tensors& in) { return pow(exp(in[0]), in[1]); }},
      {"add_number", {small}, {large}, 2, [](const Tensors& in) { return add(in[0], 1.5); }},
      {"subtract_from_number", {small}, {large}, 2, [](const Tensors& in) { return subtract(0.3, in[0]); }},
      {"divide_by_number", {small}, {large}, 2, [](const Tensors& in) { return divide(in[0], 3.0); }},
      {"divide_number", {small}, {large}, 24, [](const Tensors& in) { return divide(2.0, exp(in[0])); }},
      {"maximum", {small, small}, {large, large}, 2, [](const Tensors& in) { return maximum(in[0], in[1]); }},
      {"maximum_number", {small}, {large}, 2, [](const Tensors& in) { return maximum(in[0], 0.0); }},
      {"minimum_broadcast",
       {small, column},
       {large, large_column},
       24,
       [](const Tensors& in) { return minimum(in[0], in[1]); },
       {1}},
      {"clamp", {small}, {large}, 2, [](const Tensors& in) { return clamp(in[0], -0.501, 0.3003); }},
      {"where",
       {small, column},
       {large, large_column},
       24,
       [](const Tensors& in) { return where(less(in[0].detach(), 0.0), in[0], in[1]); },
       {1}},
      {"where_number",
       {small},
       {large},
       2,
       [](const Tensors& in) { return where(greater(in[0].detach(), 0.0), in[0], -1.0); }},
  };
}

/// Returns cases of extremes along dimensions, and of cutting and joining them.
inline std::vector<OpCase> part_cases() {
  const Shape small{3, 4, 7}, large{3, 1100, 70}, four{2, 3, 4, 5}, large_four{3, 70, 4, 33};
  return {
      {"max_of_all", {small}, {large}, 2, [](const Tensors& in) { return max(in[0]); }},
      {"min_of_all", {small}, {large}, 2, [](const Tensors& in) { return min(in[0]); }},
      {"max_first", {small}, {large}, 1, [](const Tensors& in) { return max(in[0], 0); }},
      {"min_middle", {small}, {large}, 1, [](const Tensors& in) { return min(in[0], -2, true); }},
      {"max_last", {small}, {large}, 1, [](const Tensors& in) { return max(in[0], -1); }},
      {"slice_last", {small}, {large}, 1, [](const Tensors& in) { return slice(in[0], -1, 2, 6); }},
      {"slice_middle", {four}, {large_four}, 1, [](const Tensors& in) { return slice(in[0], 1, -2, -1); }},
      {"cat_last",
       {{3, 4, 7}, {3, 4, 2}},
       {large, {3, 1100, 33}},
       1,
       [](const Tensors& in) {
         return cat({in[0], in[1]}, -1);
       },
       {1}},
      {"cat_first_same",
       {small},
       {large},
       2,
       [](const Tensors& in) {
         return cat({in[0], in[0]});
       }},
      {"stack_middle",
       {small, small},
       {large, large},
       1,
       [](const Tensors& in) {
         return stack({in[0], in[1]}, 1);
       }},
      {"chunk",
       {small},
       {large},
       4,
       [](const Tensors& in) {
         const Tensors parts = chunk(in[0], 2, -1);  // of 4 and 3 columns
         return multiply(slice(parts[0], -1, 0, parts[1].shape()[-1]), parts[1]);
       }},
  };
}

/// Returns cases whose inputs are all parameters, of which a 16-bit operation reads the copies.
inline std::vector<OpCase> parameter_cases() {
  std::vector<OpCase> cases = function_cases();
  for (OpCase& op : part_cases()) cases.push_back(std::move(op));
  for (OpCase& op : cases) {
    op.name += "_of_parameters";
    for (size_t i = 0; i < op.small.size(); ++i) op.parameters.insert(i);
  }
  return cases;
}

}  // namespace lockstep
