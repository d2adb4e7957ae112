// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/softmax.h"

namespace lockstep::predicted {
namespace {

void add_layer_norm(Cases& cases, DType dtype, int64_t rows, int64_t columns) {
  const Shape shape{rows, columns};
  for (const bool with_residual : {false, true})
    add(cases, dtype, concat(extents(shape), with_residual ? " with residual" : ""), [=](Arrays& a) {
      return LayerNormForward{.x = a.input(shape, dtype),
                              .residual = with_residual ? a.input(shape, dtype) : View{},
                              .weight = a.input({columns}, dtype),
                              .bias = a.input({columns}, dtype),
                              .sum = with_residual ? a.output(shape, dtype) : View{},
                              .y = a.output(shape, dtype),
                              .mean = a.output({rows}, DType::f32),
                              .rstd = a.output({rows}, DType::f32)};
    });
  for (const bool with_carried : {false, true})
    add(cases, dtype, concat(extents(shape), with_carried ? " with carried and sums" : ""), [=](Arrays& a) {
      return LayerNormBackward{.x = a.input(shape, dtype),
                               .weight = a.input({columns}, dtype),
                               .mean = a.input({rows}, DType::f32, 0.1),
                               .rstd = a.positive({rows}, DType::f32, 2.0),
                               .dy = a.input(shape, dtype),
                               .carried = with_carried ? a.input(shape, dtype) : View{},
                               .dx = a.output(shape, dtype),
                               .dweight = a.output({columns}, DType::f32),
                               .dbias = a.output({columns}, DType::f32),
                               .dx_sum = with_carried ? a.output({columns}, DType::f32) : View{}};
    });
}

/// Adds RMSNorm, without biases as models have it.
void add_rms_norm(Cases& cases, DType dtype, int64_t rows, int64_t columns) {
  const Shape shape{rows, columns};
  for (const bool with_residual : {false, true})
    add(cases, dtype, concat(extents(shape), " without mean", with_residual ? " with residual" : ""),
        [=](Arrays& a) {
          return LayerNormForward{.x = a.input(shape, dtype),
                                  .residual = with_residual ? a.input(shape, dtype) : View{},
                                  .weight = a.input({columns}, dtype),
                                  .sum = with_residual ? a.output(shape, dtype) : View{},
                                  .y = a.output(shape, dtype),
                                  .rstd = a.output({rows}, DType::f32)};
        });
  for (const bool with_carried : {false, true})
    add(cases, dtype, concat(extents(shape), " without mean", with_carried ? " with carried" : ""),
        [=](Arrays& a) {
          return LayerNormBackward{.x = a.input(shape, dtype),
                                   .weight = a.input({columns}, dtype),
                                   .rstd = a.positive({rows}, DType::f32, 2.0),
                                   .dy = a.input(shape, dtype),
                                   .carried = with_carried ? a.input(shape, dtype) : View{},
                                   .dx = a.output(shape, dtype),
                                   .dweight = a.output({columns}, DType::f32)};
        });
}

void add_softmax(Cases& cases, DType dtype, int64_t rows, int64_t columns) {
  const Shape shape{rows, columns};
  add(cases, dtype, extents(shape), [=](Arrays& a) {
    return SoftmaxForward{.x = a.input(shape, dtype, 8.0), .y = a.output(shape, dtype)};
  });
  add(cases, dtype, extents(shape), [=](Arrays& a) {
    return SoftmaxBackward{
        .y = a.positive(shape, dtype), .dy = a.input(shape, dtype), .dx = a.output(shape, dtype)};
  });
}

void add_cross_entropy(Cases& cases, DType dtype, int64_t rows, int64_t classes, bool with_gradient) {
  add(cases, dtype, concat(extents({rows, classes}), with_gradient ? " with gradient" : ""), [=](Arrays& a) {
    return CrossEntropy{.logits = a.input({rows, classes}, dtype, 8.0),
                        .targets = a.ids({rows}, static_cast<int32_t>(classes)),
                        .losses = a.output({rows}, DType::f32),
                        .dlogits = with_gradient ? a.output({rows, classes}, dtype) : View{},
                        .scale = with_gradient ? a.number(0.125, DType::f32) : View{},
                        .ignore_index = 3};
  });
}

void add_embedding(Cases& cases, DType dtype, int64_t columns) {
  add(cases, dtype, concat("columns ", columns), [=](Arrays& a) {
    return EmbeddingForward{
        .ids = a.ids({90}, 13), .table = a.input({13, columns}, dtype), .y = a.output({90, columns}, dtype)};
  });
  for (const bool adds : {false, true})
    add(cases, dtype, concat("columns ", columns, adds ? " added" : ""), [=](Arrays& a) {
      // Some of the five rows are used more than 64 times, which is the length of a run.
      return EmbeddingBackward{.ids = a.ids({700}, 5),
                               .dy = a.input({700, columns}, dtype),
                               .dtable = a.updated(a.input({9, columns}, DType::f32)),
                               .adds = adds};
    });
}

}  // namespace

Cases row_cases() {
  Cases cases;
  for (const DType dtype : float_dtypes) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{5, 64}, {40, 768}, {3, 1001}}) {
      add_layer_norm(cases, dtype, rows, columns);
      add_softmax(cases, dtype, rows, columns);
    }
    // One size for each layout of layer_norm_layout.cuh: those with 16-byte accesses, then the others.
    for (const int64_t columns : {512, 1024, 2048, 4096, 8192, 4001, 8001})
      add_layer_norm(cases, dtype, 2, columns);
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{37, 64}, {21, 128}, {9, 72}, {6, 200}})
      add_rms_norm(cases, dtype, rows, columns);
    for (const int64_t columns : {512, 768, 1001, 1024, 2048, 4096, 8192})
      add_rms_norm(cases, dtype, 2, columns);
    add_softmax(cases, dtype, 2, 9000);
    add_softmax(cases, dtype, 2, 9001);
    for (const auto& [rows, classes] :
         {std::pair<int64_t, int64_t>{9, 65}, {3, 1000}, {2, 3001}, {2, 4000}, {2, 50304}})
      for (const bool with_gradient : {false, true})
        add_cross_entropy(cases, dtype, rows, classes, with_gradient);
    add_embedding(cases, dtype, 40);
    add_embedding(cases, dtype, 768);
  }
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t count : {1, 3000})
      add(cases, DType::i32, concat(count, " in ", dtype), [=](Arrays& a) {
        return InverseCount{.targets = a.ids({count}, 50), .ignore_index = 3, .y = a.output({1}, dtype)};
      });
  return cases;
}

}  // namespace lockstep::predicted
