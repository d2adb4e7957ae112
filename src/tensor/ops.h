// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/random.h"
#include "kernels/gelu.h"
#include "tensor/autograd.h"
#include "tensor/tensor.h"

namespace lockstep {

// Differentiable operations on float tensors: f32, bf16 and f16 everywhere, f64 on the CPU. 16 bits are
// storage: an operation computes in fp32 and rounds what it writes, once. Parameters are f32 (or f64); next
// to 16-bit tensors their copy in 16 bits is read, and their gradient is f32. Every file of ops/ holds the
// forward and the gradient of one.

// Element by element. Shapes that differ are broadcast as in PyTorch: compared from the last dimension on,
// extents are equal, or one of them is 1 (or missing) and repeated. Throws Error naming both otherwise.
Tensor add(const Tensor& a, const Tensor& b);       ///< a + b
Tensor subtract(const Tensor& a, const Tensor& b);  ///< a - b
Tensor multiply(const Tensor& a, const Tensor& b);  ///< a * b
Tensor divide(const Tensor& a, const Tensor& b);    ///< a / b
Tensor scale(const Tensor& x, double factor);       ///< factor * x
Tensor exp(const Tensor& x);                        ///< e^x
Tensor log(const Tensor& x);                        ///< natural logarithm: -infinity at 0, NaN below
Tensor relu(const Tensor& x);                       ///< max(x, 0)
Tensor tanh(const Tensor& x);                       ///< hyperbolic tangent
Tensor gelu(const Tensor& x, Gelu form = Gelu::tanh);
/// x in another dtype, rounded to nearest even; x itself if it has that one (PyTorch's x.to(dtype)). i32
/// becomes any dtype, floats become floats. The gradient arrives in the dtype of x.
Tensor convert(const Tensor& x, DType dtype);

/// How a layer's weight lies in memory: as PyTorch's Linear keeps it, or as GPT-2's products do. No result's
/// bits depend on it.
enum class WeightOrder { out_in, in_out };

/// y = x . weight^T + bias (+ residual), with x [..., in], weight [out, in], bias [out] or empty, residual
/// like y or empty; y [..., out]. A weight [in, out] is not transposed.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Tensor& residual = {},
              WeightOrder order = WeightOrder::out_in);

/// The two layers of feed_forward(): in [inputs, hidden], out [hidden, outputs]; biases may be empty.
struct FeedForwardWeights {
  Tensor in, bias_in;
  Tensor out, bias_out;
};
/// linear(gelu(linear(x, in, bias_in)), out, bias_out) (+ residual), weights in_out: x [..., inputs] ->
/// [..., outputs].
Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Gelu form,
                    const Tensor& residual = {});
/// [..., m, k] . [..., k, n] -> [..., m, n]: a product for every pair of matrices, where the dimensions
/// before them are broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
/// A copy with two dimensions swapped; negative ones count from the last. Of a matrix: its transpose.
Tensor transpose(const Tensor& x, int first = -2, int second = -1);

/// e^x / sum(e^x) along a dimension, the largest x subtracted first. NaN where all x are -infinity.
Tensor softmax(const Tensor& x, int dimension = -1);

/// Layer normalisation over the last dimension (Ba et al. 2016): biased variance; weight, bias [columns],
/// bias may be empty.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
/// x + branch, and its layer_norm, in one pass.
struct SumAndNorm {
  Tensor sum;
  Tensor norm;
};
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon = 1e-5);

/// Rows of `table` [rows, columns] picked by i32 `ids` [...]: [..., columns]. Throws Error for an id outside.
Tensor embedding(const Tensor& ids, const Tensor& table);
/// x [batch, time, columns] + table[0:time] for every sample: learned positions.
Tensor add_positions(const Tensor& x, const Tensor& table);

/// Drops elements with this probability and scales the rest by 1 / (1 - probability). The key's `sample` is
/// the global index of row 0 of the first dimension, which counts samples: masks do not depend on how a batch
/// is cut.
Tensor dropout(const Tensor& x, double probability, const RandomKey& key);

/// Causal self-attention on packed qkv [batch, time, 3 * heads * size] (queries, keys, values; head-major
/// inside each) -> [batch, time, heads * size], scaled by 1/sqrt(size). Never stores a time x time matrix.
/// With `dropout` > 0 attention weights are dropped, keyed on logical coordinates.
Tensor causal_attention(const Tensor& qkv, int64_t heads, double dropout = 0.0, const RandomKey& key = {});

/// What cached_attention() keeps of texts: CachedAttention::keys and values.
struct AttentionCache {
  Tensor keys, values;
};
/// Room for so many texts of so many tokens, of heads of this size.
AttentionCache make_kept_attention(int64_t texts, int64_t tokens, int64_t heads, int64_t size, DType dtype,
                                   const Stream& stream = current_stream());
/// causal_attention() of tokens that go on in texts, without a gradient: qkv [tokens, 3 * heads * size] and
/// i32 `places` [tokens, 2], the text and the position of each -> [tokens, heads * size]. On a CPU the same
/// bits.
Tensor cached_attention(const Tensor& qkv, int64_t heads, const AttentionCache& kept, const Tensor& places);

/// Mean cross entropy of logits [..., classes] against i32 targets [...]; rows whose target is `ignore_index`
/// do not count. A scalar; 0 if every row is ignored, where PyTorch has NaN. Its gradient is rounded to the
/// dtype of logits when it is made, so in f16 it has to hold `loss_scale` (GradScaler::scale()) by then.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int32_t ignore_index = -1,
                     const Tensor& loss_scale = {});
/// cross_entropy(linear(x, weight), targets) for `rows_at_once` rows of x after the other, so that not all
/// logits exist at once; 0: all rows. The rows of a piece show in the bits of weight's gradient. A constant
/// `bias` [classes] may be added to logits.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t rows_at_once = 0, int32_t ignore_index = -1,
                            const Tensor& loss_scale = {}, const Tensor& bias = {});
/// Mean of (x - y)^2 over all elements, a scalar. Equal shapes.
Tensor mean_squared_error(const Tensor& x, const Tensor& y);
Tensor sum(const Tensor& x);   ///< of all elements in index order by fixed blocks, a scalar
Tensor mean(const Tensor& x);  ///< sum / size
/// Over one dimension, negative from the last, which goes unless it is kept as 1. A mean over none is NaN.
Tensor sum(const Tensor& x, int dimension, bool keep_dimension = false);
Tensor mean(const Tensor& x, int dimension, bool keep_dimension = false);

}  // namespace lockstep
