// SPDX-License-Identifier: Apache-2.0
#include "kernels/bits/numbers.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/rotary.h"
#include "lockstep/kernels/softmax.h"
#include "lockstep/kernels/sum.h"

namespace lockstep::bits {
namespace {

std::string label_of(const char* name, DType dtype, const Shape& shape) {
  return concat(name, " ", dtype, " ", shape);
}

void print_layer_norm(const Shape& shape, DType dtype) {
  const int64_t rows = shape[0], columns = shape[1];
  const DType sums = accumulator_dtype(dtype);
  Values x = uniform(shape, dtype, 1), residual = uniform(shape, dtype, 2),
         weight = uniform({columns}, dtype, 3);
  Values bias = uniform({columns}, dtype, 4), dy = uniform(shape, dtype, 5),
         carried = uniform(shape, dtype, 6);
  Values sum(shape, dtype), y(shape, dtype), dx(shape, dtype), mean({rows}, sums), rstd({rows}, sums),
      dweight({columns}, sums), dbias({columns}, sums);
  launch_here(LayerNormForward{.x = x.view(),
                               .residual = residual.view(),
                               .weight = weight.view(),
                               .bias = bias.view(),
                               .sum = sum.view(),
                               .y = y.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view()});
  print_line(label_of("layer_norm_forward", dtype, shape), y, sum, mean, rstd);
  launch_here(LayerNormBackward{.x = x.view(),
                                .weight = weight.view(),
                                .mean = mean.view(),
                                .rstd = rstd.view(),
                                .dy = dy.view(),
                                .carried = carried.view(),
                                .dx = dx.view(),
                                .dweight = dweight.view(),
                                .dbias = dbias.view()});
  print_line(label_of("layer_norm_backward", dtype, shape), dx, dweight, dbias);
  launch_here(LayerNormForward{.x = x.view(), .weight = weight.view(), .y = y.view(), .rstd = rstd.view()});
  launch_here(LayerNormBackward{.x = x.view(),
                                .weight = weight.view(),
                                .rstd = rstd.view(),
                                .dy = dy.view(),
                                .dx = dx.view(),
                                .dweight = dweight.view()});
  print_line(label_of("rms_norm", dtype, shape), y, rstd, dx, dweight);
}

/// Rotates heads of `columns` columns, an even number.
void print_rotary(int64_t rows, int64_t columns, DType dtype) {
  const DType sums = accumulator_dtype(dtype);
  Values frequencies = uniform({columns / 2}, sums, 21), positions = integers({rows}, 22, 0, 100'000);
  Values table({rows, columns}, sums), x = uniform({rows, 2 * columns}, dtype, 23), y(x.shape(), dtype);
  launch_here(
      RotaryTable{.frequencies = frequencies.view(), .positions = positions.view(), .y = table.view()});
  launch_here(Rotate{.x = x.view(), .table = table.view(), .y = y.view()});
  print_line(label_of("rotary", dtype, {rows, columns}), table, y);
}

void print_softmax(const Shape& shape, DType dtype) {
  Values x = spread(shape, dtype, 7, -20, 5), dy = uniform(shape, dtype, 8);
  Values y(shape, dtype), dx(shape, dtype), losses({shape[0]}, accumulator_dtype(dtype));
  launch_here(SoftmaxForward{.x = x.view(), .y = y.view()});
  launch_here(SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
  print_line(label_of("softmax", dtype, shape), y, dx);
  Values targets = integers({shape[0]}, 9, -1, shape[1]);
  launch_here(CrossEntropy{.logits = x.view(),
                           .targets = targets.view(),
                           .losses = losses.view(),
                           .dlogits = dx.view(),
                           .gradient_scale = 0.3});
  print_line(label_of("cross_entropy", dtype, shape), losses, dx);
}

void print_sums(const Shape& shape, DType dtype) {
  Values x = spread(shape, dtype, 10), y({1}, dtype);
  const DType sums = accumulator_dtype(dtype);
  Values of_columns({shape[1]}, sums), of_rows({shape[0]}, sums);
  launch_here(Sum{.x = x.view(), .y = y.view()});
  launch_here(DimensionSum{.x = x.view(), .y = of_columns.view(), .count = shape[0], .inner = shape[1]});
  launch_here(DimensionSum{.x = x.view(), .y = of_rows.view(), .count = shape[1]});
  print_line(label_of("sum", dtype, shape), y, of_columns, of_rows);
  launch_here(ColumnSum{.x = x.view(), .y = of_columns.view()});
  print_line(label_of("column_sum", dtype, shape), of_columns);
  if (sums != dtype) return;
  const int64_t blocks = (x.view().size() + sum_block - 1) / sum_block;
  Values squares({blocks}, DType::f64), norm({1}, DType::f64), factor({1}, DType::f32);
  launch_here(BlockSquares{.x = x.view(), .y = squares.view(), .ranges = {{0, blocks, 0}}});
  launch_here(
      ClipFactor{.squares = squares.view(), .max_norm = 1.0, .norm = norm.view(), .factor = factor.view()});
  print_line(label_of("clip_factor", dtype, shape), squares, norm, factor);
}

void print_embedding(const Shape& shape, DType dtype) {
  const int64_t rows = shape[0], columns = shape[1];
  Values ids = integers({3, 50}, 11, 0, rows), table = uniform(shape, dtype, 12);
  Values y({3, 50, columns}, dtype), dtable(shape, accumulator_dtype(dtype)),
      positions({60, columns}, accumulator_dtype(dtype));
  Values places = uniform({60, columns}, dtype, 13);
  launch_here(EmbeddingForward{.ids = ids.view(), .table = table.view(), .y = y.view()});
  launch_here(AddPositions{.x = y.view(), .table = places.view(), .y = y.view()});
  launch_here(EmbeddingBackward{.ids = ids.view(), .dy = y.view(), .dtable = dtable.view()});
  launch_here(AddPositionsBackward{.dy = y.view(), .dtable = positions.view()});
  print_line(label_of("embedding", dtype, shape), y, dtable, positions);
}

}  // namespace

void print_rows() {
  for (const DType dtype : float_types)
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{7, 31}, Shape{33, 32}, Shape{70, 33},
                               Shape{5, 64}, Shape{130, 100}, Shape{9, 1037}, Shape{1100, 70}}) {
      print_layer_norm(shape, dtype);
      print_rotary(shape[0], shape[1] / 2 * 2 + 2, dtype);
      print_softmax(shape, dtype);
      print_sums(shape, dtype);
      print_embedding(shape, dtype);
    }
}

}  // namespace lockstep::bits
