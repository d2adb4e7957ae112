// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"

namespace lockstep {

/// Returns the extents as text, for example "65536x768".
std::string text_of(const Shape& shape);

/// A Linear layer. The shapes are x [rows, inputs], W [inputs, outputs] and y [rows, outputs].
struct Layer {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;

  Shape x() const { return {rows, inputs}; }
  Shape weight() const { return {inputs, outputs}; }
  Shape y() const { return {rows, outputs}; }
  std::string text() const { return text_of({rows, inputs, outputs}); }
};

/// Sizes of causal attention with packed queries, keys and values.
struct AttentionSize {
  int64_t batch = 0, time = 0, heads = 0, size = 0;

  Shape y() const { return {batch, time, heads * size}; }
  Shape qkv() const { return {batch, time, 3 * heads * size}; }
  Shape scores() const { return {batch, heads, time, time}; }
  Shape statistics() const { return {batch, heads, time}; }
  std::string text() const { return text_of({batch, time, heads, size}); }
};

/// Sizes of activations [batch, time, width] whose tokens are from a vocabulary.
struct ActivationSize {
  int64_t batch = 0, time = 0, width = 0, vocabulary = 0;

  Shape rows() const { return {batch * time, width}; }
  Shape sequences() const { return {batch, time, width}; }
};

/// Sizes of a block of Llama or Qwen, whose width is heads * size.
struct LlamaSize {
  int64_t tokens = 0, heads = 0, key_heads = 0, size = 0, hidden = 0;

  Shape rows() const { return {tokens, heads * size}; }
  Shape queries() const { return {tokens * heads, size}; }
  Shape mlp() const { return {tokens, hidden}; }
};

/// Shapes to time for each kind of kernel, and the dtype of activations.
struct CaseSizes {
  DType dtype = DType::f32;
  std::vector<Layer> layers = {};
  std::vector<ActivationSize> mlps = {};  ///< for matmuls with a fused GELU or residual
  std::vector<AttentionSize> attentions = {};
  std::vector<ActivationSize> activations = {};
  std::vector<LlamaSize> llamas = {};
  std::vector<Shape> logits = {};
  std::vector<int64_t> parameters = {};
};

/// Returns shapes that are small enough for a CPU. They belong to the smallest configuration, a larger one
/// and slices of GPT-2 (124M).
CaseSizes cpu_sizes();
/// Returns the shapes of whole steps of GPT-2 (124M) with 64 and 32 sequences and of the small Shakespeare
/// model. Attention also has head size 128 and longer sequences.
CaseSizes gpu_sizes(DType dtype);
/// Returns one small shape for each kernel, to check that all kernels run.
CaseSizes quick_sizes(DType dtype);

}  // namespace lockstep
