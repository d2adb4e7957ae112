// SPDX-License-Identifier: Apache-2.0
#include "kernel_cases.h"

#include "lockstep/core/memory.h"
#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/fold.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/softmax.h"
#include "lockstep/kernels/sum.h"
#include "lockstep/kernels/transpose.h"
#include "lockstep/movement/reduction_plan.h"

namespace lockstep {
namespace {

/// Returns i32 values in [0, bound).
Tensor random_ids(const Shape& shape, int64_t bound) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shape.elements(); ++i)
    ids.push_back(static_cast<int32_t>((i * 2654435761) % bound));
  return from_values(ids, shape);
}

/// Runs a forward kernel once, because the backward kernel reads its results.
template <Kernel K>
void run_once(const K& kernel) {
  launch(current_stream(), kernel);
}

Work attention(const AttentionSize& size, DType dtype, bool is_backward) {
  const Tensor qkv = random_tensor(size.qkv(), dtype), y = empty(size.y(), dtype);
  const Tensor sums = empty(size.statistics(), accumulator_dtype(dtype));
  const CausalAttentionForward forward{.qkv = unpack_heads(qkv.view(), size.heads),
                                       .y = y.view(),
                                       .log_sum_exp = sums.view(),
                                       .heads = size.heads};
  if (!is_backward) return computing(forward, {qkv, y, sums});
  run_once(forward);
  const Tensor dy = random_tensor(size.y(), dtype), dqkv = empty(size.qkv(), dtype);
  const CausalAttentionBackward backward{.qkv = forward.qkv,
                                         .y = y.view(),
                                         .log_sum_exp = sums.view(),
                                         .dy = dy.view(),
                                         .dqkv = unpack_heads(dqkv.view(), size.heads),
                                         .heads = size.heads};
  return computing(backward, {qkv, y, sums, dy, dqkv});
}

Work cross_entropy(const Shape& shape, DType dtype) {
  const Tensor logits = random_tensor(shape, dtype), dlogits = empty(shape, dtype);
  const Tensor losses = empty({shape[0]}, accumulator_dtype(dtype));
  const Tensor targets = random_ids({shape[0]}, shape[1]);
  const CrossEntropy kernel{.logits = logits.view(),
                            .targets = targets.view(),
                            .losses = losses.view(),
                            .dlogits = dlogits.view(),
                            .scale = {}};
  return moving(kernel, {logits, targets, losses, dlogits});
}

Work gelu_forward(const Shape& shape, DType dtype, Gelu form) {
  const Tensor x = random_tensor(shape, dtype), y = empty(shape, dtype);
  return moving(GeluForward{.x = x.view(), .y = y.view(), .form = form}, {x, y});
}

Work gelu_backward(const Shape& shape, DType dtype, Gelu form) {
  const Tensor x = random_tensor(shape, dtype), dy = random_tensor(shape, dtype), dx = empty(shape, dtype);
  return moving(GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = form}, {x, dy, dx});
}

Work add(const Shape& shape, DType dtype) {
  const Tensor a = random_tensor(shape, dtype), b = random_tensor(shape, dtype), y = empty(shape, dtype);
  return moving(Add{.a = a.view(), .b = b.view(), .y = y.view()}, {a, b, y});
}

/// Adds a vector to every row.
Work add_broadcast(const Shape& shape, DType dtype) {
  const Tensor a = random_tensor(shape, dtype), b = random_tensor({shape[-1]}, dtype),
               y = empty(shape, dtype);
  return moving(Add{.a = a.view(), .b = b.view(), .y = y.view()}, {a, b, y});
}

/// Sums over the rows of a matrix or over its columns.
Work dimension_sum(const Shape& shape, DType dtype, bool is_over_rows) {
  const Tensor x = random_tensor(shape, dtype);
  const Tensor y = empty({shape[is_over_rows ? 1 : 0]}, accumulator_dtype(dtype));
  return moving(DimensionSum{.x = x.view(),
                             .y = y.view(),
                             .count = shape[is_over_rows ? 0 : 1],
                             .inner = is_over_rows ? shape[1] : 1},
                {x, y});
}

Work softmax(const AttentionSize& size, DType dtype, bool is_backward) {
  const Tensor x = random_tensor(size.scores(), dtype), y = empty(x.shape(), dtype);
  const SoftmaxForward forward{.x = x.view(), .y = y.view()};
  if (!is_backward) return moving(forward, {x, y});
  run_once(forward);
  const Tensor dx = empty(x.shape(), dtype);
  return moving(SoftmaxBackward{.y = y.view(), .dy = x.view(), .dx = dx.view()}, {y, x, dx});
}

/// Transposes [batch, time, heads, size] to [batch, heads, time, size], or swaps its last two dimensions.
Work transpose(const AttentionSize& size, DType dtype, int first) {
  const Tensor x = random_tensor({size.batch, size.time, size.heads, size.size}, dtype);
  const Tensor y = empty(Transpose::swapped(x.shape(), first, first + 1), dtype);
  return moving(Transpose{.x = x.view(), .y = y.view(), .first = first, .second = first + 1}, {x, y});
}

/// Multiplies the queries of all heads with their keys.
Work batched_matmul(const AttentionSize& size, DType dtype) {
  const Shape of_head{size.batch, size.heads, size.time, size.size};
  const Tensor a = random_tensor(of_head, dtype), b = random_tensor(of_head, dtype);
  const Tensor c = empty(size.scores(), dtype);
  return computing(BatchedMatMul{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_b = true},
                   {a, b, c});
}

Work column_sum(const Shape& shape, DType dtype) {
  const Tensor x = random_tensor(shape, dtype), y = empty({shape[-1]}, accumulator_dtype(dtype));
  return moving(ColumnSum{.x = x.view(), .y = y.view()}, {x, y});
}

Work dropout(const Shape& shape, DType dtype) {
  const Tensor x = random_tensor(shape, dtype), y = empty(shape, dtype);
  return moving(Dropout{.x = x.view(), .y = y.view(), .probability = 0.2, .key = {.seed = 1}}, {x, y});
}

Work embedding_forward(const ActivationSize& size, DType dtype) {
  const int64_t tokens = size.batch * size.time;
  const Tensor ids = random_ids({tokens}, size.vocabulary);
  const Tensor table = random_tensor({size.vocabulary, size.width}, dtype), y = empty(size.rows(), dtype);
  const EmbeddingForward kernel{.ids = ids.view(), .table = table.view(), .y = y.view()};
  return moving(kernel, {ids, table, y});
}

Work embedding_backward(const ActivationSize& size, DType dtype) {
  const Tensor ids = random_ids({size.batch * size.time}, size.vocabulary);
  const Tensor dtable = empty({size.vocabulary, size.width}, accumulator_dtype(dtype));
  const Tensor dy = random_tensor(size.rows(), dtype);
  return moving(EmbeddingBackward{.ids = ids.view(), .dy = dy.view(), .dtable = dtable.view()},
                {ids, dy, dtable});
}

Work add_positions(const ActivationSize& size, DType dtype, bool is_backward) {
  const Tensor x = random_tensor(size.sequences(), dtype);
  const DType of_table = is_backward ? accumulator_dtype(dtype) : dtype;
  const Tensor table = random_tensor({size.time, size.width}, of_table);
  if (is_backward) return moving(AddPositionsBackward{.dy = x.view(), .dtable = table.view()}, {x, table});
  const Tensor y = empty(x.shape(), dtype);
  return moving(AddPositions{.x = x.view(), .table = table.view(), .y = y.view()}, {x, table, y});
}

Work adamw(int64_t parameters, DType activations) {
  const Tensor parameter = random_tensor({parameters}, DType::f32);
  const Tensor gradient = random_tensor({parameters}, DType::f32);
  const Tensor first = zeros({parameters}), second = zeros({parameters});
  std::vector<Tensor> operands{parameter, gradient, first, second};
  AdamWStep kernel;
  kernel.slices.push_back({.parameter = parameter.view(),
                           .gradient = gradient.view(),
                           .first_moment = first.view(),
                           .second_moment = second.view(),
                           .weight_decay = 0.1});
  if (activations != DType::f32) {
    operands.push_back(empty({parameters}, activations));
    kernel.slices.back().compute_copy = operands.back().view();
  }
  return moving(std::move(kernel), std::move(operands));
}

Work block_squares(int64_t elements) {
  const int64_t blocks = (elements + sum_block - 1) / sum_block;
  const Tensor x = random_tensor({elements}, DType::f32), y = empty({blocks}, DType::f64);
  return moving(BlockSquares{.x = x.view(), .y = y.view(), .ranges = {{0, blocks}}}, {x, y});
}

/// Folds the leaves of all replicas on one rank that holds all of them in its memory.
Work tree_fold(int replicas, int64_t elements) {
  std::vector<Tensor> operands;
  Fold kernel;
  for (int v = 0; v < replicas; ++v) {
    operands.push_back(random_tensor({elements}, DType::f32));
    kernel.inputs.push_back(operands.back().view());
  }
  operands.push_back(empty({elements}));
  const ReductionPlan plan(replicas, 1, replicas, 0, Execution::interleaved, false);
  kernel.program = plan.rounds[0].folds[0].program;
  kernel.y = operands.back().view();
  kernel.scale = 1.0f / static_cast<float>(replicas);
  return moving(std::move(kernel), std::move(operands));
}

}  // namespace

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.view().bytes();
  return bytes;
}

/// Draws the first 2^20 values on the host, one by one. Fills the rest by copies that double in length.
Tensor random_tensor(const Shape& shape, DType dtype) {
  constexpr int64_t distinct = int64_t{1} << 20;
  const Tensor tensor = empty(shape, dtype);
  const Tensor flat = tensor.reshape({-1});
  const int64_t size = tensor.size();
  fill_normal(flat.slice(0, std::min(size, distinct)), 0.0, 1.0, 1, 0);
  for (int64_t filled = distinct; filled < size; filled *= 2) {
    const int64_t count = std::min(filled, size - filled);
    copy(flat.slice(0, count), flat.slice(filled, filled + count));
  }
  return tensor;
}

std::vector<KernelCase> other_cases(const CaseSizes& sizes) {
  std::vector<KernelCase> cases;
  const DType dtype = sizes.dtype;
  const auto add_case = [&](const char* kernel, const std::string& shape, std::function<Work()> prepare) {
    cases.push_back({kernel, shape, std::move(prepare)});
  };
  for (const AttentionSize& size : sizes.attentions) {
    add_case("attention_forward", size.text(), [=] { return attention(size, dtype, false); });
    add_case("attention_backward", size.text(), [=] { return attention(size, dtype, true); });
    add_case("softmax_forward", text_of(size.scores()), [=] { return softmax(size, dtype, false); });
    add_case("softmax_backward", text_of(size.scores()), [=] { return softmax(size, dtype, true); });
    add_case("transpose_runs", size.text(), [=] { return transpose(size, dtype, 1); });
    add_case("transpose_tiles", size.text(), [=] { return transpose(size, dtype, 2); });
    add_case("batched_matmul", size.text(), [=] { return batched_matmul(size, dtype); });
  }
  for (const ActivationSize& size : sizes.activations) {
    const Shape rows = size.rows(), wide = rows.with_last(4 * size.width);
    add_case("layer_norm_forward", text_of(rows),
             [=] { return norm_forward(NormKind::layer, rows, dtype, false); });
    add_case("layer_norm_residual", text_of(rows),
             [=] { return norm_forward(NormKind::layer, rows, dtype, true); });
    add_case("layer_norm_backward", text_of(rows),
             [=] { return norm_backward(NormKind::layer, rows, dtype, true); });
    add_case("gelu_tanh_forward", text_of(wide), [=] { return gelu_forward(wide, dtype, Gelu::tanh); });
    add_case("gelu_tanh_backward", text_of(wide), [=] { return gelu_backward(wide, dtype, Gelu::tanh); });
    add_case("gelu_erf_forward", text_of(wide), [=] { return gelu_forward(wide, dtype, Gelu::erf); });
    add_case("gelu_erf_backward", text_of(wide), [=] { return gelu_backward(wide, dtype, Gelu::erf); });
    add_case("add", text_of(rows), [=] { return add(rows, dtype); });
    add_case("add_broadcast", text_of(rows), [=] { return add_broadcast(rows, dtype); });
    add_case("sum_over_rows", text_of(wide), [=] { return dimension_sum(wide, dtype, true); });
    add_case("sum_over_columns", text_of(wide), [=] { return dimension_sum(wide, dtype, false); });
    add_case("column_sum", text_of(wide), [=] { return column_sum(wide, dtype); });
    add_case("dropout", text_of(rows), [=] { return dropout(rows, dtype); });
    const std::string lookup = concat(rows[0], "of", size.vocabulary, "x", size.width);
    add_case("embedding_forward", lookup, [=] { return embedding_forward(size, dtype); });
    add_case("embedding_backward", lookup, [=] { return embedding_backward(size, dtype); });
    const std::string sequences = text_of(size.sequences());
    add_case("add_positions", sequences, [=] { return add_positions(size, dtype, false); });
    add_case("add_positions_backward", sequences, [=] { return add_positions(size, dtype, true); });
  }
  for (const Shape& shape : sizes.logits)
    add_case("cross_entropy", text_of(shape), [=] { return cross_entropy(shape, dtype); });
  for (const int64_t parameters : sizes.parameters) {
    add_case("adamw_step", concat(parameters), [=] { return adamw(parameters, dtype); });
    add_case("block_squares", concat(parameters), [=] { return block_squares(parameters); });
    add_case("tree_fold_of_2", concat(parameters), [=] { return tree_fold(2, parameters); });
    add_case("tree_fold_of_4", concat(parameters), [=] { return tree_fold(4, parameters); });
  }
  return cases;
}

}  // namespace lockstep
