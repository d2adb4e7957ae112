// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/fold.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/sum.h"

namespace lockstep::predicted {
namespace {

void add_sums(Cases& cases, DType dtype) {
  for (const int64_t count : {1, 1000, 70001})
    add(cases, dtype, concat(count),
        [=](Arrays& a) { return Sum{.x = a.input({count}, dtype), .y = a.output({1}, dtype)}; });
  struct Sizes {
    int64_t outer, count, inner;
  };
  for (const Sizes& s :
       {Sizes{3, 100, 1}, Sizes{2, 37, 40}, Sizes{1, 300, 520}, Sizes{2, 5000, 40}, Sizes{5, 2000, 1}})
    add(cases, dtype, extents({s.outer, s.count, s.inner}), [=](Arrays& a) {
      return DimensionSum{.x = a.input({s.outer, s.count, s.inner}, dtype),
                          .y = a.output({s.outer, s.inner}, accumulator_dtype(dtype)),
                          .count = s.count,
                          .inner = s.inner};
    });
  for (const Shape& shape : {Shape{100, 40}, Shape{513, 768}})
    add(cases, dtype, extents(shape), [=](Arrays& a) {
      return ColumnSum{.x = a.input(shape, dtype), .y = a.output({shape[1]}, DType::f32)};
    });
}

void add_squares(Cases& cases) {
  add(cases, DType::f32, "3 blocks and the last one short", [](Arrays& a) {
    return BlockSquares{.x = a.input({2 * sum_block + 100}, DType::f32),
                        .y = a.output({3}, DType::f64),
                        .ranges = {{.first = 0, .last = 3}}};
  });
  add(cases, DType::f32, "two ranges", [](Arrays& a) {
    return BlockSquares{.x = a.input({3 * sum_block}, DType::f32),
                        .y = a.output({7}, DType::f64),
                        .ranges = {{.first = 1, .last = 2}, {.first = 4, .last = 6, .shift = 3}}};
  });
  for (const double max_norm : {0.0, 0.5})
    add(cases, DType::f64, concat("max_norm ", max_norm), [=](Arrays& a) {
      return ClipFactor{.squares = a.positive({5000}, DType::f64),
                        .max_norm = max_norm,
                        .norm = a.output({1}, DType::f64),
                        .factor = a.output({1}, DType::f32),
                        .scale = a.number(1024.0, DType::f32)};
    });
}

void add_folds(Cases& cases) {
  struct Tree {
    std::string name;
    int inputs;
    std::vector<int> program;
  };
  constexpr int add_two = Fold::add;
  for (const Tree& tree :
       {Tree{"of two", 2, {0, 1, add_two}}, Tree{"of three", 3, {0, 1, add_two, 2, add_two}},
        Tree{"of four", 4, {0, 1, add_two, 2, 3, add_two, add_two}}})
    for (const int64_t count : {1027, 8192})
      add(cases, DType::f32, concat(tree.name, " ", count), [=](Arrays& a) {
        Fold fold{.inputs = {}, .program = tree.program, .y = {}, .scale = 1.0f / 3.0f};
        for (int i = 0; i < tree.inputs; ++i) fold.inputs.push_back(a.input({count}, DType::f32));
        fold.y = a.output({count}, DType::f32);
        return fold;
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
}

}  // namespace

Cases sum_cases() {
  Cases cases;
  for (const DType dtype : float_dtypes) add_sums(cases, dtype);
  add_squares(cases);
  add_folds(cases);
  return cases;
}

}  // namespace lockstep::predicted
