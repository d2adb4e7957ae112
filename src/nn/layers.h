// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

/// A linear layer, y = x . weight^T + bias. `weight` is [outputs, inputs], or [inputs, outputs] for
/// WeightOrder::in_out. `bias` is [outputs] and optional. Both start as linear_values().
class Linear : public Module {
 public:
  Linear(int64_t inputs, int64_t outputs, bool has_bias = true, DType dtype = DType::f32,
         WeightOrder order = WeightOrder::out_in);

  /// Maps [..., inputs] to [..., outputs] and adds `residual` of that shape unless it is empty.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const {
    return linear(x, weight_, bias_, residual, order_);
  }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  WeightOrder order_;
  Tensor weight_;
  Tensor bias_;
};

/// A normalization over the last dimension.
class Norm : public Module {
 public:
  virtual Tensor operator()(const Tensor& x) const = 0;
  /// Returns x + branch and its norm.
  virtual SumAndNorm add(const Tensor& x, const Tensor& branch) const = 0;
};

/// Layer normalization (Ba et al. 2016). The weight starts at 1 and the bias at 0.
class LayerNorm final : public Norm {
 public:
  explicit LayerNorm(int64_t columns, bool has_bias = true, DType dtype = DType::f32);

  Tensor operator()(const Tensor& x) const override { return layer_norm(x, weight_, bias_); }
  SumAndNorm add(const Tensor& x, const Tensor& branch) const override {
    return add_layer_norm(x, branch, weight_, bias_);
  }

 private:
  Tensor weight_;
  Tensor bias_;
};

/// Root-mean-square normalization (Zhang & Sennrich 2019). The weight starts at 1.
class RmsNorm final : public Norm {
 public:
  RmsNorm(int64_t columns, double epsilon, DType dtype = DType::f32);

  Tensor operator()(const Tensor& x) const override { return rms_norm(x, weight_, epsilon_); }
  SumAndNorm add(const Tensor& x, const Tensor& branch) const override {
    return add_rms_norm(x, branch, weight_, epsilon_);
  }

 private:
  Tensor weight_;
  double epsilon_;
};

/// A table of vectors, one per row: weight [rows, columns]. It starts as N(0, 1), as in PyTorch.
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t columns, DType dtype = DType::f32,
            const InitialValues& values = normal_values(0.0, 1.0))
      : weight_(add_parameter("weight", {rows, columns}, values, dtype)) {}

  /// Returns the rows that i32 `ids` [...] select: [..., columns].
  Tensor operator()(const Tensor& ids) const { return embedding(ids, weight_); }
  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

/// The positions of tokens in their texts: vectors that are added to the tokens' vectors, or angles by which
/// attention rotates queries and keys.
class Positions : public Module {
 public:
  /// Adds the positions 0 to time - 1 to x, [batch, time, columns].
  virtual Tensor add(const Tensor& x) const { return x; }
  /// Adds the positions `places`, i32 [tokens], to x, [tokens, columns].
  virtual Tensor add_at(const Tensor& x, const Tensor& /*places*/) const { return x; }
  /// Returns the rotary_table() of the positions 0 to time - 1. It is empty if nothing is rotated.
  virtual Tensor angles(int64_t /*time*/) const { return {}; }
  /// Returns the rotary_table() of the positions `places`, i32 [tokens]. It is empty if nothing is rotated.
  virtual Tensor angles_at(const Tensor& /*places*/) const { return {}; }
};

/// A learned vector for each position: weight [positions, columns].
class LearnedPositions final : public Positions {
 public:
  LearnedPositions(int64_t positions, int64_t columns, DType dtype = DType::f32)
      : weight_(add_parameter("weight", {positions, columns}, normal_values(0.0, 1.0), dtype)) {}

  Tensor add(const Tensor& x) const override { return add_positions(x, weight_); }
  Tensor add_at(const Tensor& x, const Tensor& places) const override {
    return lockstep::add(x, embedding(places, weight_));
  }

 private:
  Tensor weight_;
};

/// Rotary positions (Su et al. 2021) for heads of twice as many elements as there are frequencies.
/// Frequencies are in radians per position. `dtype` is that of the model's parameters.
class RotaryPositions final : public Positions {
 public:
  explicit RotaryPositions(const std::vector<float>& frequencies, DType dtype = DType::f32);

  Tensor angles(int64_t time) const override { return rotary_table(frequencies_, time); }
  Tensor angles_at(const Tensor& places) const override { return rotary_table(frequencies_, places); }

 private:
  Tensor frequencies_;  ///< a constant
};

/// Fully connected layers of these widths with ReLU between them; {20, 1} is one Linear(20, 1). If its
/// parameters have 16-bit copies (ParameterSpace::set_precision), the layers compute in 16 bits. Input and
/// output stay f32. Unlike under PyTorch's autocast, a loss needs no conversion.
class Mlp : public Module {
 public:
  explicit Mlp(const std::vector<int64_t>& widths);

  /// Maps [batch, widths.front()] to [batch, widths.back()], in the dtype of x.
  Tensor operator()(const Tensor& x) const;

 private:
  std::vector<Linear*> layers_;
};

/// Keys and values of attention, with which a model continues texts without reading them again.
struct KeyValueCache {
  int64_t texts = 1;
  int64_t capacity = 0;                            ///< tokens per text
  std::map<uint32_t, AttentionCache> layers = {};  ///< key: the site of a layer's attention
  Tensor places = {};                              ///< current tokens, as in cached_attention()
};

/// The self-attention branch of a block.
class SelfAttention : public Module {
 public:
  /// Maps [batch, time, width] to the same shape and adds `residual` unless it is empty. `site` keys the
  /// dropout of attention weights. With a cache, x is [tokens, width]: the tokens of the cache's `places`.
  virtual Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                            const Tensor& residual) const = 0;
};

/// The feed-forward branch of a block.
class FeedForward : public Module {
 public:
  /// Maps [..., width] to the same shape and adds `residual` unless it is empty.
  virtual Tensor operator()(const Tensor& x, const Tensor& residual) const = 0;
};

/// Activations that the backward recomputes (Chen et al. 2016). Results do not depend on the choice.
struct Recompute {
  enum class What {
    none,
    attention,  ///< the attention branch of each block
    block,      ///< each block; only its input is kept
    segments,   ///< runs of blocks: checkpoint_sequential()
  };
  What what = What::none;
  int64_t segments = 0;  ///< number of runs for What::segments

  bool operator==(const Recompute&) const = default;
};

/// A block: x + attention(norm(x)), then x + feed_forward(norm(x)). A family of models chooses its parts.
class TransformerBlock : public Module {
 public:
  struct Parts {
    std::unique_ptr<Norm> attention_norm;
    std::unique_ptr<SelfAttention> attention;
    std::unique_ptr<Norm> feed_forward_norm;
    std::unique_ptr<FeedForward> feed_forward;
  };
  /// The names of the parts, in the order of Parts.
  using Names = std::array<const char*, 4>;

  /// `layer` keys random draws. `dropout` is that of the residual branches.
  TransformerBlock(Parts parts, const Names& names, uint32_t layer, double dropout,
                   bool recomputes_attention);

  /// Maps [batch, time, width] to the same shape.
  Tensor operator()(const Tensor& x, const Context& context) const;

 private:
  Tensor attend(const Tensor& x, const Context& context, uint32_t site, bool adds_x) const;

  Parts parts_;
  uint32_t layer_;
  double dropout_;
  bool recomputes_attention_;  ///< in the backward, instead of storing it
};

}  // namespace lockstep
