// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/comparison.h"
#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/copy_rows.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/extreme.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/power.h"
#include "lockstep/kernels/rotary.h"
#include "lockstep/kernels/sigmoid.h"
#include "lockstep/kernels/swiglu.h"
#include "lockstep/kernels/transpose.h"

namespace lockstep::predicted {
namespace {

/// Sizes with and without a remainder of a 16-byte access.
const Shape shapes[] = {{7, 515}, {2, 2048}};

/// Adds y = f(x) with more fields in `rest`.
template <class K>
void add_unary(Cases& cases, DType dtype, double scale = 4.0, K rest = {}, const std::string& kind = "") {
  for (const Shape& shape : shapes)
    add(cases, dtype, kind + extents(shape), [=](Arrays& a) {
      K kernel = rest;
      kernel.x = a.input(shape, dtype, scale);
      kernel.y = a.output(shape, dtype);
      return kernel;
    });
}

/// Adds dx = f(x or y, dy).
template <class K>
void add_gradient(Cases& cases, DType dtype, View K::*saved, K rest = {}, const std::string& kind = "") {
  for (const Shape& shape : shapes)
    add(cases, dtype, kind + extents(shape), [=](Arrays& a) {
      K kernel = rest;
      kernel.*saved = a.input(shape, dtype);
      kernel.dy = a.input(shape, dtype);
      kernel.dx = a.output(shape, dtype);
      return kernel;
    });
}

/// Adds y = f(a, b) with more fields in `rest`, and y = f(a, number). The operand b is positive, and so is a
/// if a function needs that.
template <class K>
void add_binary(Cases& cases, DType dtype, K rest = {}, const std::string& kind = "",
                bool has_positive_base = false) {
  const auto base = [=](Arrays& a, const Shape& shape) {
    return has_positive_base ? a.positive(shape, dtype) : a.input(shape, dtype);
  };
  const std::pair<Shape, Shape> pairs[] = {{{5, 515}, {5, 515}}, {{5, 64}, {64}}, {{3, 1, 40}, {7, 1}}};
  for (const auto& [first, second] : pairs)
    add(cases, dtype, concat(kind, extents(first), " and ", extents(second)),
        [=, a_shape = first, b_shape = second](Arrays& a) {
          K kernel = rest;
          kernel.a = base(a, a_shape);
          kernel.b = a.positive(b_shape, dtype);
          kernel.y = a.output(broadcast(a_shape, b_shape, K::name), dtype);
          return kernel;
        });
  add(cases, dtype, kind + "5x64 and a number", [=](Arrays& a) {
    K kernel = rest;
    kernel.a = base(a, {5, 64});
    kernel.b = OperandView(0.3, dtype);
    kernel.y = a.output({5, 64}, dtype);
    return kernel;
  });
}

void add_comparisons(Cases& cases, DType dtype) {
  const std::pair<Comparison, const char*> kinds[] = {{Comparison::less, "less, "},
                                                      {Comparison::less_equal, "less or equal, "},
                                                      {Comparison::equal, "equal, "},
                                                      {Comparison::not_equal, "not equal, "}};
  for (const auto& [comparison, kind] : kinds)
    add_binary<Compare>(cases, dtype, {.comparison = comparison, .a = {}, .b = {}, .y = {}}, kind);
  add_binary<Maximum>(cases, dtype);
  add_binary<Minimum>(cases, dtype);
  for (const Shape& mask : {Shape{5, 515}, Shape{515}, Shape{64}}) {
    const Shape whole{5, mask[-1]};
    add(cases, dtype, concat("mask of ", extents(mask)), [=](Arrays& a) {
      return Where{.mask = a.whole(mask, dtype),
                   .a = a.input(whole, dtype),
                   .b = a.input(whole, dtype),
                   .y = a.output(whole, dtype)};
    });
  }
}

/// Rows of a warp and of a block, and columns.
void add_extremes(Cases& cases, DType dtype) {
  for (const Shape& shape : {Shape{9, 130, 1}, Shape{3, 3000, 1}, Shape{3, 5, 70}})
    for (const Extreme extreme : {Extreme::largest, Extreme::smallest})
      add(cases, dtype, concat(extreme == Extreme::largest ? "largest of " : "smallest of ", extents(shape)),
          [=](Arrays& a) {
            return DimensionExtreme{.extreme = extreme,
                                    .x = a.whole(shape, dtype),
                                    .y = a.output({shape[0], shape[2]}, dtype),
                                    .places = a.output({shape[0], shape[2]}, DType::i32),
                                    .count = shape[1],
                                    .inner = shape[2]};
          });
  add(cases, dtype, "3x5x70", [=](Arrays& a) {
    return ExtremeBackward{.dy = a.input({3, 70}, dtype),
                           .places = a.ids({3, 70}, 5),
                           .dx = a.output({3, 5, 70}, dtype),
                           .count = 5,
                           .inner = 70};
  });
}

/// Kernels that also take i32.
void add_integers(Cases& cases) {
  const std::pair<Shape, Shape> pairs[] = {{{5, 515}, {5, 515}}, {{5, 64}, {64}}, {{3, 1, 41}, {7, 1}}};
  for (const auto& [first, second] : pairs) {
    const std::string name = concat(extents(first), " and ", extents(second));
    const auto pair = [=, a_shape = first, b_shape = second]<class K>(Arrays& a, K kernel) {
      kernel.a = a.ids(a_shape, 5);
      kernel.b = a.ids(b_shape, 5);
      kernel.y = a.output(broadcast(a_shape, b_shape, K::name), DType::i32);
      return kernel;
    };
    add(cases, DType::i32, name, [=](Arrays& a) {
      return pair(a, Compare{.comparison = Comparison::equal, .a = {}, .b = {}, .y = {}});
    });
    add(cases, DType::i32, name, [=](Arrays& a) { return pair(a, Maximum{}); });
    add(cases, DType::i32, name, [=, a_shape = first, b_shape = second](Arrays& a) {
      return Where{.mask = a.ids(a_shape, 2),
                   .a = a.ids(b_shape, 100),
                   .b = {-1.0, DType::i32},
                   .y = a.output(broadcast(a_shape, b_shape, "where"), DType::i32)};
    });
    if (first == second)
      add(cases, DType::i32, name + ", all whole", [=, shape = first](Arrays& a) {
        return Where{.mask = a.ids(shape, 2),
                     .a = a.ids(shape, 100),
                     .b = a.ids(shape, 100),
                     .y = a.output(shape, DType::i32)};
      });
  }
  for (const Shape& shape : {Shape{9, 130, 1}, Shape{3, 3000, 1}, Shape{3, 5, 70}})
    add(cases, DType::i32, concat("largest of ", extents(shape)), [=](Arrays& a) {
      return DimensionExtreme{.extreme = Extreme::largest,
                              .x = a.ids(shape, 100),
                              .y = a.output({shape[0], shape[2]}, DType::i32),
                              .places = a.output({shape[0], shape[2]}, DType::i32),
                              .count = shape[1],
                              .inner = shape[2]};
    });
}

/// Rows of whole and of broken 16-byte words.
void add_row_copies(Cases& cases, DType dtype) {
  for (const int64_t length : {16, 7, 6})
    add(cases, dtype, concat("33 rows of ", length), [=](Arrays& a) {
      const int64_t x_stride = 3 * length, y_stride = 2 * length;
      return CopyRows{.x = a.input({33, x_stride}, dtype),
                      .y = a.updated(a.input({33, y_stride}, dtype)),
                      .rows = 33,
                      .length = length,
                      .x_stride = x_stride,
                      .y_stride = y_stride};
    });
}

/// Adds y = f(x) for positive x.
template <class K>
void add_of_positive(Cases& cases, DType dtype) {
  for (const Shape& shape : shapes)
    add(cases, dtype, extents(shape),
        [=](Arrays& a) { return K{.x = a.positive(shape, dtype, 8.0), .y = a.output(shape, dtype)}; });
}

void add_activations(Cases& cases, DType dtype) {
  for (const Gelu form : {Gelu::tanh, Gelu::erf}) {
    const std::string kind = form == Gelu::tanh ? "tanh form " : "erf form ";
    add_unary<GeluForward>(cases, dtype, 6.0, {.x = {}, .y = {}, .form = form}, kind);
    add_gradient<GeluBackward>(cases, dtype, &GeluBackward::x, {.x = {}, .dy = {}, .dx = {}, .form = form},
                               kind);
  }
  add_unary<ReluForward>(cases, dtype);
  add_gradient<ReluBackward>(cases, dtype, &ReluBackward::x);
  add_unary<TanhForward>(cases, dtype);
  add_gradient<TanhBackward>(cases, dtype, &TanhBackward::y);
  add_unary<SigmoidForward>(cases, dtype, 6.0);
  add_gradient<SigmoidBackward>(cases, dtype, &SigmoidBackward::y);
  add_unary<SiluForward>(cases, dtype, 6.0);
  add_gradient<SiluBackward>(cases, dtype, &SiluBackward::x);
  add_unary<Exp>(cases, dtype);
  add_of_positive<Log>(cases, dtype);
  add_of_positive<Sqrt>(cases, dtype);
  add_of_positive<Rsqrt>(cases, dtype);
}

void add_swiglu(Cases& cases, DType dtype) {
  for (const Shape& shape : shapes) {
    add(cases, dtype, extents(shape), [=](Arrays& a) {
      return SwigluForward{
          .gate = a.input(shape, dtype, 6.0), .up = a.input(shape, dtype), .y = a.output(shape, dtype)};
    });
    add(cases, dtype, extents(shape), [=](Arrays& a) {
      return SwigluBackward{.gate = a.input(shape, dtype, 6.0),
                            .up = a.input(shape, dtype),
                            .dy = a.input(shape, dtype),
                            .dgate = a.output(shape, dtype),
                            .dup = a.output(shape, dtype)};
    });
  }
}

/// Heads with and without halves of whole 16-byte accesses.
void add_rotations(Cases& cases, DType dtype) {
  for (const int64_t size : {10, 64, 128})
    for (const bool inverse : {false, true})
      add(cases, dtype, concat("2 texts of 5 tokens, 3 heads of ", size, inverse ? ", inverse" : ""),
          [=](Arrays& a) {
            return Rotate{.x = a.input({2, 5, 3 * size}, dtype),
                          .table = a.input({5, size}, DType::f32),
                          .y = a.output({2, 5, 3 * size}, dtype),
                          .inverse = inverse};
          });
}

void add_rotary_tables(Cases& cases) {
  for (const int64_t half : {5, 64})
    add(cases, DType::f32, concat("40 tokens, ", half, " frequencies"), [=](Arrays& a) {
      return RotaryTable{.frequencies = a.positive({half}, DType::f32),
                         .y = a.output({40, 2 * half}, DType::f32)};
    });
  add(cases, DType::f32, "33 given positions", [](Arrays& a) {
    return RotaryTable{.frequencies = a.positive({32}, DType::f32),
                       .positions = a.ids({33}, 2000000000),
                       .y = a.output({33, 64}, DType::f32)};
  });
}

void add_fill(Cases& cases, DType dtype) {
  add(cases, dtype, "1030", [=](Arrays& a) { return Fill{.y = a.output({1030}, dtype), .value = 0.1}; });
}

void add_scales(Cases& cases, DType dtype) {
  add_unary<Scale>(cases, dtype, 1.0, {.x = {}, .y = {}, .factor = 0.3});
  for (const Shape& shape : shapes)
    add(cases, dtype, extents(shape), [=](Arrays& a) {
      return ScaleBy{
          .x = a.input(shape, dtype), .factor = a.number(0.7, DType::f32), .y = a.output(shape, dtype)};
    });
  add_fill(cases, dtype);
  add_unary<Dropout>(cases, dtype, 1.0, {.x = {}, .y = {}, .probability = 0.3, .key = some_key});
}

void add_transposes(Cases& cases, DType dtype) {
  struct Swap {
    Shape shape;
    int first, second;
  };
  for (const Swap& swap : {Swap{{70, 45}, 0, 1}, Swap{{9, 11}, 0, 1}, Swap{{4, 5, 3}, 0, 1},
                           Swap{{2, 33, 3, 16}, 1, 2}, Swap{{5, 3, 40}, 0, 2}})
    add(cases, dtype, concat(extents(swap.shape), " dimensions ", swap.first, " and ", swap.second),
        [=](Arrays& a) {
          const Shape swapped = Transpose::swapped(swap.shape, swap.first, swap.second);
          return Transpose{.x = a.input(swap.shape, dtype),
                           .y = a.output(swapped, dtype),
                           .first = swap.first,
                           .second = swap.second};
        });
}

void add_moves(Cases& cases, DType dtype) {
  add_unary<Copy>(cases, dtype);
  add(cases, DType::i32, concat("to ", dtype), [=](Arrays& a) {
    return Convert{.x = a.ids({3, 515}, 100000), .y = a.output({3, 515}, dtype)};
  });
  for (const DType to : float_dtypes)
    add(cases, dtype, concat("to ", to), [=](Arrays& a) {
      return Convert{.x = a.input({3, 515}, dtype), .y = a.output({3, 515}, to)};
    });
  add_transposes(cases, dtype);
  add(cases, dtype, "3 samples of 5 positions", [=](Arrays& a) {
    return AddPositions{
        .x = a.input({3, 5, 40}, dtype), .table = a.input({9, 40}, dtype), .y = a.output({3, 5, 40}, dtype)};
  });
  add(cases, dtype, "3 samples of 5 positions", [=](Arrays& a) {
    return AddPositionsBackward{.dy = a.input({3, 5, 40}, dtype), .dtable = a.output({9, 40}, DType::f32)};
  });
}

}  // namespace

Cases element_cases() {
  Cases cases;
  for (const DType dtype : float_dtypes) {
    add_activations(cases, dtype);
    add_swiglu(cases, dtype);
    add_rotations(cases, dtype);
    add_scales(cases, dtype);
    add_moves(cases, dtype);
    add_binary<Add>(cases, dtype);
    add_binary<Subtract>(cases, dtype);
    add_binary<Multiply>(cases, dtype);
    add_binary<Divide>(cases, dtype);
    add_binary<Power>(cases, dtype, {}, "", true);
    add_comparisons(cases, dtype);
    add_extremes(cases, dtype);
    add_row_copies(cases, dtype);
  }
  add_integers(cases);
  add_rotary_tables(cases);
  add_fill(cases, DType::f64);
  add_transposes(cases, DType::f64);
  return cases;
}

}  // namespace lockstep::predicted
