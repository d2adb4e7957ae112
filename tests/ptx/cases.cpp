// SPDX-License-Identifier: Apache-2.0

// Launches every kernel of the project's own in the emulator, which records the launches for the interpreter:
// the cases with predicted bits, most of them again with arrays that are not aligned, and cases for the
// kernels that neither reaches.

#include "kernels/predicted/cases.h"

#include <cstdio>
#include <set>
#include <string>

#include "core/error.h"
#include "core/gpu.h"
#include "kernels/attention.h"
#include "kernels/batched_matmul.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/fold.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/softmax.h"
#include "kernels/sum.h"
#include "kernels/transpose.h"

namespace lockstep::predicted {
namespace {

/// Rows for each layout of layer_norm_layout.cuh: those with 16-byte accesses, then the others.
void add_layer_norms(Cases& cases, DType dtype) {
  for (const int64_t columns : {512, 1024, 2048, 4096, 8192, 4001, 8001})
    for (const bool with_residual : {false, true})
      add(cases, dtype, concat(columns, with_residual), [=](Arrays& a) {
        const Shape shape{2, columns};
        const View x = a.input(shape, dtype), dy = a.input(shape, dtype), weight = a.input({columns}, dtype);
        launch(a.stream(), LayerNormForward{.x = x,
                                            .residual = with_residual ? dy : View{},
                                            .weight = weight,
                                            .bias = a.input({columns}, dtype),
                                            .sum = with_residual ? a.output(shape, dtype) : View{},
                                            .y = a.output(shape, dtype),
                                            .mean = a.output({2}, DType::f32),
                                            .rstd = a.output({2}, DType::f32)});
        return LayerNormBackward{.x = x,
                                 .weight = weight,
                                 .mean = a.input({2}, DType::f32, 0.1),
                                 .rstd = a.positive({2}, DType::f32, 2.0),
                                 .dy = dy,
                                 .carried = with_residual ? a.input(shape, dtype) : View{},
                                 .dx = a.output(shape, dtype),
                                 .dweight = a.output({columns}, DType::f32),
                                 .dbias = a.output({columns}, DType::f32),
                                 .dx_sum = with_residual ? a.output({columns}, DType::f32) : View{}};
      });
}

void add_attention(Cases& cases, DType dtype, int64_t time, int64_t size, double dropout) {
  add(cases, dtype, concat(time, " ", size, " ", dropout), [=](Arrays& a) {
    const CausalAttentionForward forward{.qkv = a.input({1, time, 3 * size}, dtype, 2.0),
                                         .y = a.output({1, time, size}, dtype),
                                         .log_sum_exp = a.output({1, 1, time}, DType::f32),
                                         .heads = 1,
                                         .dropout = dropout,
                                         .key = some_key};
    launch(a.stream(), forward);
    return CausalAttentionBackward{.qkv = forward.qkv,
                                   .y = forward.y,
                                   .log_sum_exp = forward.log_sum_exp,
                                   .dy = a.input({1, time, size}, dtype),
                                   .dqkv = a.output({1, time, 3 * size}, dtype),
                                   .dqkv_sum = a.output({3 * size}, DType::f32),
                                   .heads = 1,
                                   .dropout = dropout,
                                   .key = some_key};
  });
}

/// Products whose epilogue is the project's own. Their factors are small whole numbers (see
/// product_cases.cpp). With an odd number of columns the epilogue accesses single elements.
void add_epilogues(Cases& cases, DType dtype, DType c_dtype) {
  for (const int64_t n : {40, 41})
    add(cases, dtype, concat(c_dtype, " ", n), [=](Arrays& a) {
      MatMul product{.a = a.whole({16, 24}, dtype), .b = a.whole({24, n}, dtype)};
      product.c = a.output({16, n}, c_dtype);
      product.bias = a.whole({n}, dtype);
      product.pre_activation = a.output({16, n}, c_dtype);
      product.activation = Activation::gelu_erf;
      return product;
    });
}

/// Long rows whose lengths are not multiples of a 16-byte access, and one that fits into shared memory.
void add_long_rows(Cases& cases, DType dtype) {
  add(cases, dtype, "2x9001", [=](Arrays& a) {
    return SoftmaxForward{.x = a.input({2, 9001}, dtype, 8.0), .y = a.output({2, 9001}, dtype)};
  });
  add(cases, dtype, "2x9001", [=](Arrays& a) {
    return SoftmaxBackward{
        .y = a.positive({2, 9001}, dtype), .dy = a.input({2, 9001}, dtype), .dx = a.output({2, 9001}, dtype)};
  });
  for (const int64_t classes : {3001, 4000})
    for (const bool with_gradient : {false, true})
      add(cases, dtype, concat(classes, with_gradient), [=](Arrays& a) {
        return CrossEntropy{.logits = a.input({2, classes}, dtype, 8.0),
                            .targets = a.ids({2}, static_cast<int32_t>(classes)),
                            .losses = a.output({2}, DType::f32),
                            .dlogits = with_gradient ? a.output({2, classes}, dtype) : View{},
                            .scale = with_gradient ? a.number(0.125, DType::f32) : View{},
                            .ignore_index = 3};
      });
}

void add_odd_moves(Cases& cases, DType dtype) {
  add(cases, DType::i32, concat("to ", dtype), [=](Arrays& a) {
    return Convert{.x = a.ids({3, 515}, 100000), .y = a.output({3, 515}, dtype)};
  });
  add(cases, dtype, "fill", [=](Arrays& a) { return Fill{.y = a.output({1030}, dtype), .value = 0.1}; });
  for (const Shape& shape : {Shape{9, 11}, Shape{4, 5, 3}})
    add(cases, dtype, extents(shape), [=](Arrays& a) {
      return Transpose{.x = a.input(shape, dtype), .y = a.output(Transpose::swapped(shape, 0, 1), dtype)};
    });
}

void add_other_sums(Cases& cases) {
  add(cases, DType::f32, "many blocks", [](Arrays& a) {
    return DimensionSum{.x = a.input({2, 5000, 40}, DType::f32),
                        .y = a.output({2, 40}, DType::f32),
                        .count = 5000,
                        .inner = 40};
  });
  add(cases, DType::f32, "of 90", [](Arrays& a) {
    Fold fold{.inputs = {a.input({100}, DType::f32)}, .program = {0}, .y = {}};
    for (int i = 1; i < 90; ++i) {
      fold.inputs.push_back(a.input({100}, DType::f32));
      fold.program.insert(fold.program.end(), {i, Fold::add});
    }
    fold.y = a.output({100}, DType::f32);
    return fold;
  });
  add(cases, DType::i32, "in f64", [](Arrays& a) {
    return InverseCount{.targets = a.ids({3000}, 50), .ignore_index = 3, .y = a.output({1}, DType::f64)};
  });
}

Cases more_cases() {
  Cases cases;
  for (const DType dtype : float_dtypes) {
    add_layer_norms(cases, dtype);
    add_attention(cases, dtype, 40, 96, 0.0);
    add_attention(cases, dtype, 40, 128, 0.1);
    add_attention(cases, dtype, 70, 64, 0.1);
    add_epilogues(cases, dtype, dtype);
    add_epilogues(cases, dtype, DType::f32);
    add_long_rows(cases, dtype);
    add_odd_moves(cases, dtype);
  }
  for (const DType dtype : {DType::bf16, DType::f16})
    add(cases, dtype, "sums in f32", [=](Arrays& a) {
      return BatchedMatMul{.a = a.input({2, 20, 17}, dtype),
                           .b = a.input({2, 17, 33}, dtype),
                           .c = a.output({2, 20, 33}, DType::f32)};
    });
  add(cases, DType::f64, "fill",
      [](Arrays& a) { return Fill{.y = a.output({1030}, DType::f64), .value = 0.1}; });
  for (const Shape& shape : {Shape{9, 11}, Shape{4, 5, 3}})
    add(cases, DType::f64, extents(shape), [=](Arrays& a) {
      return Transpose{.x = a.input(shape, DType::f64),
                       .y = a.output(Transpose::swapped(shape, 0, 1), DType::f64)};
    });
  add_other_sums(cases);
  return cases;
}

/// Returns whether the kernel takes arrays that begin at any element.
bool takes_any_address(const Case& one) {
  static const std::set<std::string> aligned = {CausalAttentionForward::name, CausalAttentionBackward::name,
                                                "cached_attention", MatMul::name};
  return !aligned.contains(one.kernel) || one.dtype == DType::f32;
}

int run_all() {
  require(count_gpus() > 0, why_no_gpu());
  const Stream stream = make_gpu_stream(0);
  Cases cases = all_cases();
  for (Case& one : more_cases()) cases.push_back(std::move(one));
  for (const int64_t shift : {0, 1})
    for (const Case& one : cases) {
      if (shift != 0 && !takes_any_address(one)) continue;
      Arrays arrays(stream, shift);
      one.run(arrays);
    }
  return 0;
}

}  // namespace
}  // namespace lockstep::predicted

int main() {
  try {
    return lockstep::predicted::run_all();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "ptx_cases: %s\n", problem.what());
    return 1;
  }
}
