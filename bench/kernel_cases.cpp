// SPDX-License-Identifier: Apache-2.0
#include "kernel_cases.h"

#include "dist/replica_tree.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/sum.h"

namespace lockstep {
namespace {

std::string text_of(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += concat(text.empty() ? "" : "x", extent);
  return text;
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.view().bytes();
  return bytes;
}

/// A kernel that is rated by the bytes of its operands.
template <Kernel K>
Work moving(K kernel, const std::vector<Tensor>& operands) {
  return Work::by_bytes(launching(std::move(kernel), operands), bytes_of(operands));
}

/// i32 in [0, bound).
Tensor random_ids(const Shape& shape, int64_t bound) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shape.elements(); ++i)
    ids.push_back(static_cast<int32_t>((i * 2654435761) % bound));
  return from_values(ids, shape);
}

struct Attention {
  int64_t batch = 0, time = 0, heads = 0, size = 0;

  Shape y() const { return {batch, time, heads * size}; }
  Shape qkv() const { return {batch, time, 3 * heads * size}; }
  Shape statistics() const { return {batch, heads, time}; }
  std::string text() const { return text_of({batch, time, heads, size}); }
  /// Of one product with the weights, whose upper half is never computed.
  double product_flops() const { return static_cast<double>(batch * heads * time * (time + 1) * size); }
};

Work attention_forward(const Attention& shape) {
  const Tensor qkv = random_tensor(shape.qkv()), y = empty(shape.y()), sums = empty(shape.statistics());
  const CausalAttentionForward kernel{
      .qkv = qkv.view(), .y = y.view(), .log_sum_exp = sums.view(), .heads = shape.heads};
  return Work::by_flops(launching(kernel, {qkv, y, sums}), 2.0 * shape.product_flops());
}

Work attention_backward(const Attention& shape) {
  const Tensor qkv = random_tensor(shape.qkv()), y = empty(shape.y()), sums = empty(shape.statistics());
  const Tensor dy = random_tensor(shape.y()), dqkv = empty(shape.qkv());
  launch(current_stream(),
         CausalAttentionForward{
             .qkv = qkv.view(), .y = y.view(), .log_sum_exp = sums.view(), .heads = shape.heads});
  const CausalAttentionBackward kernel{.qkv = qkv.view(),
                                       .y = y.view(),
                                       .log_sum_exp = sums.view(),
                                       .dy = dy.view(),
                                       .dqkv = dqkv.view(),
                                       .heads = shape.heads};
  // The weights again, then the gradients of weights, values, queries and keys.
  return Work::by_flops(launching(kernel, {qkv, y, sums, dy, dqkv}), 5.0 * shape.product_flops());
}

struct LayerNormOperands {
  explicit LayerNormOperands(const Shape& shape)
      : x(random_tensor(shape)),
        weight(random_tensor({shape[-1]})),
        y(empty(shape)),
        mean(empty({shape.rows()})),
        rstd(empty({shape.rows()})) {}

  LayerNormForward forward() const {
    return {.x = x.view(),
            .weight = weight.view(),
            .bias = {},
            .y = y.view(),
            .mean = mean.view(),
            .rstd = rstd.view()};
  }

  Tensor x, weight, y, mean, rstd;
};

Work layer_norm_forward(const Shape& shape) {
  const LayerNormOperands with(shape);
  return moving(with.forward(), {with.x, with.weight, with.y, with.mean, with.rstd});
}

Work layer_norm_backward(const Shape& shape) {
  const LayerNormOperands with(shape);
  launch(current_stream(), with.forward());
  const Tensor dy = random_tensor(shape), dx = empty(shape), dweight = empty({shape[-1]});
  const LayerNormBackward kernel{.x = with.x.view(),
                                 .weight = with.weight.view(),
                                 .mean = with.mean.view(),
                                 .rstd = with.rstd.view(),
                                 .dy = dy.view(),
                                 .dx = dx.view(),
                                 .dweight = dweight.view(),
                                 .dbias = {}};
  return moving(kernel, {with.x, with.weight, with.mean, with.rstd, dy, dx, dweight});
}

Work cross_entropy(const Shape& shape) {
  const Tensor logits = random_tensor(shape), dlogits = empty(shape), losses = empty({shape[0]});
  const Tensor targets = random_ids({shape[0]}, shape[1]);
  const CrossEntropy kernel{
      .logits = logits.view(), .targets = targets.view(), .losses = losses.view(), .dlogits = dlogits.view()};
  return moving(kernel, {logits, targets, losses, dlogits});
}

Work gelu_forward(const Shape& shape, Gelu form) {
  const Tensor x = random_tensor(shape), y = empty(shape);
  return moving(GeluForward{.x = x.view(), .y = y.view(), .form = form}, {x, y});
}

Work gelu_backward(const Shape& shape, Gelu form) {
  const Tensor x = random_tensor(shape), dy = random_tensor(shape), dx = empty(shape);
  return moving(GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = form}, {x, dy, dx});
}

Work add(const Shape& shape) {
  const Tensor a = random_tensor(shape), b = random_tensor(shape), y = empty(shape);
  return moving(Add{.a = a.view(), .b = b.view(), .y = y.view()}, {a, b, y});
}

Work column_sum(const Shape& shape) {
  const Tensor x = random_tensor(shape), y = empty({shape[-1]});
  return moving(ColumnSum{.x = x.view(), .y = y.view()}, {x, y});
}

Work dropout(const Shape& shape) {
  const Tensor x = random_tensor(shape), y = empty(shape);
  return moving(Dropout{.x = x.view(), .y = y.view(), .probability = 0.2, .key = {.seed = 1}}, {x, y});
}

/// Only rows that are looked up move, so the table does not count.
Work embedding_forward(int64_t tokens, const Shape& table_shape) {
  const Tensor ids = random_ids({tokens}, table_shape[0]), table = random_tensor(table_shape);
  const Tensor y = empty({tokens, table_shape[1]});
  const EmbeddingForward kernel{.ids = ids.view(), .table = table.view(), .y = y.view()};
  return Work::by_bytes(launching(kernel, {ids, table, y}), bytes_of({ids, y, y}));
}

Work embedding_backward(int64_t tokens, const Shape& table_shape) {
  const Tensor ids = random_ids({tokens}, table_shape[0]), dtable = empty(table_shape);
  const Tensor dy = random_tensor({tokens, table_shape[1]});
  return moving(EmbeddingBackward{.ids = ids.view(), .dy = dy.view(), .dtable = dtable.view()},
                {ids, dy, dtable});
}

Work adamw(int64_t parameters) {
  const Tensor parameter = random_tensor({parameters}), gradient = random_tensor({parameters});
  const Tensor first = zeros({parameters}), second = zeros({parameters});
  AdamWStep kernel;
  kernel.segments.push_back({.parameter = parameter.view(),
                             .gradient = gradient.view(),
                             .first_moment = first.view(),
                             .second_moment = second.view(),
                             .weight_decay = 0.1});
  // Reads four arrays, and writes three of them back.
  return Work::by_bytes(launching(std::move(kernel), {parameter, gradient, first, second}),
                        7 * parameter.view().bytes());
}

Work sum_of_squares(int64_t elements) {
  const Tensor x = random_tensor({elements}), y = empty({}, DType::f64);
  SumOfSquares kernel;
  kernel.inputs.push_back(x.view());
  kernel.y = y.view();
  return moving(std::move(kernel), {x, y});
}

/// What one rank adds when the leaves of all replicas lie in its memory.
Work tree_fold(int replicas, int64_t elements) {
  std::vector<TreeNode> leaves;
  std::vector<Tensor> operands;
  std::vector<const float*> inputs;
  for (int v = 0; v < replicas; ++v) {
    leaves.push_back({0, v});
    operands.push_back(random_tensor({elements}));
    inputs.push_back(operands.back().data<float>());
  }
  operands.push_back(empty({elements}));
  float* sum = operands.back().data<float>();
  const float scale = 1.0f / static_cast<float>(replicas);
  const auto fold = [=, keep = operands, program = fold_program(replicas, leaves)] {
    run_fold(program, inputs, sum, elements, scale);
  };
  return Work::by_bytes(fold, bytes_of(operands));
}

}  // namespace

std::vector<KernelCase> other_cases() {
  std::vector<KernelCase> cases;
  const auto add_case = [&](const char* kernel, const std::string& shape, std::function<Work()> prepare) {
    cases.push_back({kernel, shape, std::move(prepare)});
  };
  for (const Attention& shape : {Attention{3, 64, 4, 32}, {2, 256, 6, 64}, {1, 1024, 12, 64}}) {
    add_case("attention_forward", shape.text(), [=] { return attention_forward(shape); });
    add_case("attention_backward", shape.text(), [=] { return attention_backward(shape); });
  }
  // Activations of the smallest configuration, of the larger one, and of GPT-2 (124M).
  for (const Shape& shape : {Shape{192, 128}, {512, 384}, {2048, 768}}) {
    const Shape wide = shape.with_last(4 * shape[-1]);
    add_case("layer_norm_forward", text_of(shape), [=] { return layer_norm_forward(shape); });
    add_case("layer_norm_backward", text_of(shape), [=] { return layer_norm_backward(shape); });
    add_case("gelu_tanh_forward", text_of(wide), [=] { return gelu_forward(wide, Gelu::tanh); });
    add_case("gelu_tanh_backward", text_of(wide), [=] { return gelu_backward(wide, Gelu::tanh); });
    add_case("gelu_erf_forward", text_of(wide), [=] { return gelu_forward(wide, Gelu::erf); });
    add_case("gelu_erf_backward", text_of(wide), [=] { return gelu_backward(wide, Gelu::erf); });
    add_case("add", text_of(shape), [=] { return add(shape); });
    add_case("column_sum", text_of(wide), [=] { return column_sum(wide); });
    add_case("dropout", text_of(shape), [=] { return dropout(shape); });
    const Shape table{shape[0] < 2048 ? 65 : 50257, shape[1]};
    const std::string lookup = concat(shape[0], "of", text_of(table));
    add_case("embedding_forward", lookup, [=] { return embedding_forward(shape[0], table); });
    add_case("embedding_backward", lookup, [=] { return embedding_backward(shape[0], table); });
  }
  for (const Shape& shape : {Shape{192, 65}, {512, 65}, {256, 50257}})
    add_case("cross_entropy", text_of(shape), [=] { return cross_entropy(shape); });
  for (const int64_t parameters : {804'096, 10'745'088}) {
    add_case("adamw_step", concat(parameters), [=] { return adamw(parameters); });
    add_case("sum_of_squares", concat(parameters), [=] { return sum_of_squares(parameters); });
    add_case("tree_fold_of_2", concat(parameters), [=] { return tree_fold(2, parameters); });
    add_case("tree_fold_of_4", concat(parameters), [=] { return tree_fold(4, parameters); });
  }
  return cases;
}

}  // namespace lockstep
