// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace lockstep {

/// "65536x768".
std::string text_of(const Shape& shape);

/// A Linear layer: x [rows, inputs], W [outputs, inputs], y [rows, outputs].
struct Layer {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;

  Shape x() const { return {rows, inputs}; }
  Shape weight() const { return {inputs, outputs}; }
  Shape y() const { return {rows, outputs}; }
  std::string text() const { return text_of({rows, inputs, outputs}); }
  double flops() const { return 2.0 * static_cast<double>(rows * inputs * outputs); }
};

/// Causal attention, packed queries, keys and values.
struct AttentionSize {
  int64_t batch = 0, time = 0, heads = 0, size = 0;

  Shape y() const { return {batch, time, heads * size}; }
  Shape qkv() const { return {batch, time, 3 * heads * size}; }
  Shape scores() const { return {batch, heads, time, time}; }
  Shape statistics() const { return {batch, heads, time}; }
  std::string text() const { return text_of({batch, time, heads, size}); }
  /// Of one product with the weights, whose upper half is never computed.
  double product_flops() const { return static_cast<double>(batch * heads * time * time * size); }
};

/// Activations [batch, time, width] of tokens out of a vocabulary.
struct ActivationSize {
  int64_t batch = 0, time = 0, width = 0, vocabulary = 0;

  Shape rows() const { return {batch * time, width}; }
  Shape sequences() const { return {batch, time, width}; }
};

/// What the rows of the table are: the shapes of each kind of kernel, and the dtype of activations.
struct CaseSizes {
  DType dtype = DType::f32;
  std::vector<Layer> layers = {};
  std::vector<ActivationSize> mlps = {};  ///< whose products have a GELU or a residual fused to them
  std::vector<AttentionSize> attentions = {};
  std::vector<ActivationSize> activations = {};
  std::vector<Shape> logits = {};
  std::vector<int64_t> parameters = {};
};

/// Steps small enough for a CPU: the smallest configuration, a larger one, and slices of GPT-2 (124M).
CaseSizes cpu_sizes();
/// Whole steps of GPT-2 (124M) with 64 and 32 sequences and of the small Shakespeare model; attention also
/// at head size 128 and at longer sequences.
CaseSizes gpu_sizes(DType dtype);
/// One small shape of each, to see whether everything runs.
CaseSizes quick_sizes(DType dtype);

}  // namespace lockstep
