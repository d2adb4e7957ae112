// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/kernels/attention_heads.h"
#include "lockstep/kernels/gelu_form.h"
#include "lockstep/kernels/random.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Differentiable operations on float tensors: f32, bf16 and f16 everywhere, f64 on the CPU. 16-bit dtypes are
// for storage: an operation computes in fp32 and rounds each value once when it writes it. Parameters are f32
// (or f64). Next to 16-bit tensors an operation reads the parameter's 16-bit copy. The parameter's gradient
// is f32. The files of ops/ contain each operation's forward and gradient.

/// An operand of an elementwise operation: a tensor, or a number of the dtype that the tensors have.
class Operand {
 public:
  Operand(const Tensor& tensor) : tensor_(tensor), is_number_(false) {}
  Operand(double number) : number_(number), is_number_(true) {}

  bool is_number() const { return is_number_; }
  double number() const { return number_; }
  /// Returns the tensor; empty for a number.
  const Tensor& tensor() const { return tensor_; }
  Shape shape() const { return is_number_ ? Shape() : tensor_.shape(); }
  Operand detach() const { return is_number_ ? *this : Operand(tensor_.detach()); }

 private:
  Tensor tensor_;
  double number_ = 0.0;
  bool is_number_;
};

/// @name Elementwise operations
/// Different shapes are broadcast as in PyTorch, from the last dimension on. Two extents must be equal, or
/// one of them is 1 (or missing) and repeated. Else an Error names both shapes.
/// @{
Tensor add(const Operand& a, const Operand& b);       ///< a + b
Tensor subtract(const Operand& a, const Operand& b);  ///< a - b
Tensor multiply(const Operand& a, const Operand& b);  ///< a * b
Tensor divide(const Operand& a, const Operand& b);    ///< a / b
Tensor scale(const Tensor& x, double factor);         ///< factor * x
/// Returns a^b. As in PyTorch the result is 1 for b = 0, and NaN for a < 0 and b that is not whole.
Tensor pow(const Operand& a, const Operand& b);
Tensor sqrt(const Tensor& x);     ///< square root: NaN for negative x
Tensor rsqrt(const Tensor& x);    ///< 1 / sqrt(x): infinite at 0
Tensor exp(const Tensor& x);      ///< e^x
Tensor log(const Tensor& x);      ///< natural logarithm: -infinity at 0, NaN below
Tensor relu(const Tensor& x);     ///< max(x, 0)
Tensor tanh(const Tensor& x);     ///< hyperbolic tangent
Tensor sigmoid(const Tensor& x);  ///< 1 / (1 + e^-x)
Tensor silu(const Tensor& x);     ///< x * sigmoid(x)
Tensor gelu(const Tensor& x, Gelu form = Gelu::tanh);
Tensor swiglu(const Tensor& gate, const Tensor& up);  ///< silu(gate) * up for equal shapes
/// @}

/// @name Comparisons
/// They return a mask: 1 where the condition holds and 0 elsewhere, in the operands' dtype (also i32). They
/// have no gradient. A NaN differs from every number. Different shapes are broadcast.
/// @{
Tensor less(const Operand& a, const Operand& b);           ///< a < b
Tensor less_equal(const Operand& a, const Operand& b);     ///< a <= b
Tensor greater(const Operand& a, const Operand& b);        ///< a > b
Tensor greater_equal(const Operand& a, const Operand& b);  ///< a >= b
Tensor equal(const Operand& a, const Operand& b);          ///< a == b, element by element
Tensor not_equal(const Operand& a, const Operand& b);      ///< a != b
/// @}

/// Returns a where the mask is not 0, else b. All three are broadcast. The mask may have another dtype, but
/// for i32 operands it is i32.
Tensor where(const Tensor& mask, const Operand& a, const Operand& b);
/// Returns the larger of a and b, or NaN if one of them is. Where they are equal, each gets half the
/// gradient.
Tensor maximum(const Operand& a, const Operand& b);
/// Returns the smaller of a and b, with the rules of maximum().
Tensor minimum(const Operand& a, const Operand& b);
/// Returns min(max(x, low), high). The gradient is that of x where low < x < high, else 0. An infinite
/// bound is none.
Tensor clamp(const Tensor& x, double low, double high);

/// Returns x in another dtype, rounded to nearest even. This is PyTorch's x.to(dtype): x itself if it has
/// that dtype. i32 converts to any dtype and floats convert to floats. The gradient has the dtype of x.
Tensor convert(const Tensor& x, DType dtype);

/// Memory order of a layer's weight: [out, in] as in PyTorch's Linear, or [in, out] as in GPT-2. Results are
/// bit-identical in both orders.
enum class WeightOrder { out_in, in_out };

/// Returns x . weight^T + bias (+ residual) for x [..., in] and weight [out, in]. The result is [..., out].
/// `bias` [out] and `residual` (like the result) may be empty. A weight [in, out] is not transposed.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Tensor& residual = {},
              WeightOrder order = WeightOrder::out_in);

/// Weights of feed_forward(): in [inputs, hidden], out [hidden, outputs]. Biases may be empty.
struct FeedForwardWeights {
  Tensor in, bias_in;
  Tensor out, bias_out;
};
/// Returns linear(gelu(linear(x, in, bias_in)), out, bias_out) (+ residual), with weights in the order
/// in_out: x [..., inputs] -> [..., outputs].
Tensor feed_forward(const Tensor& x, const FeedForwardWeights& weights, Gelu form,
                    const Tensor& residual = {});
/// Multiplies [..., m, k] . [..., k, n] -> [..., m, n]: one matmul per pair of matrices. The dimensions
/// before the matrices are broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
/// Returns a copy with two dimensions swapped; negative ones count from the last. By default this transposes
/// each matrix.
Tensor transpose(const Tensor& x, int first = -2, int second = -1);

/// Returns elements [begin, end) of a dimension, in memory of their own. As in PyTorch, negative numbers
/// count from the end of the dimension. Tensor::slice() of the first dimension shares memory instead.
Tensor slice(const Tensor& x, int dimension, int64_t begin, int64_t end);
/// Joins tensors along an existing dimension. Their other extents must be equal.
Tensor cat(const std::vector<Tensor>& tensors, int dimension = 0);
/// Joins tensors of one shape along a new dimension.
Tensor stack(const std::vector<Tensor>& tensors, int dimension = 0);
/// Cuts a dimension into parts of equal size, of which the last may be smaller. As in PyTorch there may be
/// fewer parts than asked for.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int dimension = 0);

/// Returns e^x / sum(e^x) along a dimension. The largest x is subtracted first. The result is NaN if all x
/// are -infinity.
Tensor softmax(const Tensor& x, int dimension = -1);

/// Returns the layer normalization over the last dimension (Ba et al. 2016). The variance is the biased one.
/// `weight` and `bias` are [columns]; `bias` may be empty.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5);
/// Results of add_layer_norm(): x + branch and its layer_norm. One pass computes both.
struct SumAndNorm {
  Tensor sum;
  Tensor norm;
};
SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon = 1e-5);
/// Returns the root-mean-square normalization over the last dimension (Zhang & Sennrich 2019): layer_norm()
/// with a mean of 0. `weight` is [columns].
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon = 1e-6);
/// Returns x + branch and its rms_norm, computed in one pass.
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, double epsilon = 1e-6);

/// Returns the rows of `table` [rows, columns] that i32 `ids` [...] select: [..., columns]. An id outside the
/// table throws Error on the CPU and gives a row of NaN on a GPU.
Tensor embedding(const Tensor& ids, const Tensor& table);
/// Returns x [batch, time, columns] + table[0:time] for every sample: learned positions.
Tensor add_positions(const Tensor& x, const Tensor& table);

/// Returns the cosines and sines of rotary positions (Su et al. 2021), [tokens, 2 * frequencies]: first the
/// cosines of a row, then its sines. `frequencies` are radians per position. Row t is position t.
Tensor rotary_table(const Tensor& frequencies, int64_t tokens);
/// Returns the rows of these positions, i32 [tokens]. No gradient is computed.
Tensor rotary_table(const Tensor& frequencies, const Tensor& positions);
/// Rotates the heads of x, [..., tokens, heads * size], by `table` [tokens, size] of rotary_table(). Elements
/// i and i + size / 2 of a head are a pair, as in Hugging Face's Llama.
Tensor rotate(const Tensor& x, const Tensor& table);

/// Sets elements to 0 with this probability and scales the others by 1 / (1 - probability). The first
/// dimension counts samples. The key's `sample` is the global index of row 0. So masks do not depend on how a
/// batch is cut.
Tensor dropout(const Tensor& x, double probability, const RandomKey& key);

/// Returns the causal self-attention [batch, time, heads.queries * size]. `qkv` [batch, time, heads.packed()
/// * size] packs queries, keys and values, each head-major. Scores are scaled by 1/sqrt(size). No time x time
/// matrix is stored. `dropout` > 0 drops attention weights, keyed on logical coordinates.
Tensor causal_attention(const Tensor& qkv, const AttentionHeads& heads, double dropout = 0.0,
                        const RandomKey& key = {});
/// Computes the same bits from tensors that are not packed. q is [batch, time, heads.queries * size]. k and v
/// are [batch, time, heads.keys * size].
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionHeads& heads,
                        double dropout = 0.0, const RandomKey& key = {});

/// Keys and values of texts that cached_attention() has read. Keys are in panels of 16 tokens: [texts, key
/// heads, tokens / 16, size * 16]. Values are [texts, key heads, tokens, size]. Numbers of tokens and the
/// size of values are rounded up to multiples of 16.
struct AttentionCache {
  Tensor keys, values;
};
/// Allocates a cache for `texts` texts of up to `tokens` tokens each, with heads.keys heads of this size.
AttentionCache make_kept_attention(int64_t texts, int64_t tokens, const AttentionHeads& heads, int64_t size,
                                   DType dtype, const Stream& stream = current_stream());
/// Returns causal_attention() of tokens that continue texts. No gradient is computed. qkv is [tokens,
/// heads.packed() * size] and the result [tokens, heads.queries * size]. i32 `places` [tokens, 2] holds the
/// text and the position of each token. On a CPU the result is bit-identical to causal_attention().
Tensor cached_attention(const Tensor& qkv, const AttentionHeads& heads, const AttentionCache& kept,
                        const Tensor& places);
/// Returns cached_attention() of queries [tokens, heads.queries * size], and keys and values [tokens,
/// heads.keys * size].
Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionHeads& heads,
                        const AttentionCache& kept, const Tensor& places);

/// Returns the mean cross entropy of logits [..., classes] against i32 targets [...] as a scalar. Rows whose
/// target is `ignore_index` do not count. If none counts it is 0 (PyTorch: NaN). The forward rounds the
/// gradient to the logits' dtype, so for f16 it needs `loss_scale` (GradScaler::scale()). A scalar
/// `inverse_count` of the result's dtype replaces 1 / the number of rows that count.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int32_t ignore_index = -1,
                     const Tensor& loss_scale = {}, const Tensor& inverse_count = {});
/// Returns cross_entropy(linear(x, weight), targets), `rows_at_once` rows of x at a time (0: all rows). So
/// not all logits exist at once. `rows_at_once` affects the bits of weight's gradient. A constant `bias`
/// [classes] may be added to logits.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            int64_t rows_at_once = 0, int32_t ignore_index = -1,
                            const Tensor& loss_scale = {}, const Tensor& bias = {},
                            const Tensor& inverse_count = {});
/// Returns the cross entropy of each row as linear_cross_entropy() adds it, in the shape of `targets`; 0 for
/// an ignored one. No gradient is computed. On a CPU a row's value depends on that row alone.
Tensor linear_cross_entropies(const Tensor& x, const Tensor& weight, const Tensor& targets,
                              int64_t rows_at_once = 0, int32_t ignore_index = -1, const Tensor& bias = {});
/// Returns the mean of (x - y)^2 over all elements as a scalar. Shapes must be equal.
Tensor mean_squared_error(const Tensor& x, const Tensor& y);
Tensor sum(const Tensor& x);   ///< scalar sum of all elements in index order by fixed blocks
Tensor mean(const Tensor& x);  ///< sum / size
/// Sums over one dimension; mean() averages. A negative dimension counts from the last. The dimension is
/// removed unless it is kept as 1. The mean over an empty dimension is NaN.
Tensor sum(const Tensor& x, int dimension, bool keep_dimension = false);
Tensor mean(const Tensor& x, int dimension, bool keep_dimension = false);
/// Returns the largest element as a scalar, or NaN if there is one. Equal elements share the gradient.
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);  ///< the smallest element, with the rules of max()
/// Returns the largest elements along a dimension. The first of equal elements gets the gradient, and NaN
/// counts as the largest. The dimension is removed unless it is kept as 1.
Tensor max(const Tensor& x, int dimension, bool keep_dimension = false);
Tensor min(const Tensor& x, int dimension, bool keep_dimension = false);
/// Returns the place of the largest element along a dimension in i32, the first of equal ones. It has no
/// gradient.
Tensor argmax(const Tensor& x, int dimension = -1, bool keep_dimension = false);
Tensor argmin(const Tensor& x, int dimension = -1, bool keep_dimension = false);

}  // namespace lockstep
