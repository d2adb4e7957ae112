// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/arithmetic.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/comparison.h"
#include "lockstep/kernels/copy_rows.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/extreme.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/matmul.h"
#include "lockstep/kernels/power.h"
#include "lockstep/kernels/rotary.h"
#include "lockstep/kernels/sigmoid.h"
#include "lockstep/kernels/sum.h"
#include "lockstep/kernels/swiglu.h"

namespace lockstep {

/// The memory traffic and the operations that a kernel's contract requires. Every operand moves once, and
/// twice if it is updated. A backend may need more.
struct Cost {
  double bytes = 0;
  double flops = 0;  ///< of matrix products only; other kernels are bound by memory

  Cost& operator+=(const Cost& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

/// Returns the bytes of all views, each counted once. An empty view has none.
template <class... Views>
double bytes_of_views(const Views&... views) {
  return static_cast<double>(((views ? views.bytes() : 0) + ...));
}

inline Cost cost(const MatMul& k) {
  return {.bytes = bytes_of_views(k.a, k.b, k.bias, k.c, k.pre_activation, k.residual, k.column_sum),
          .flops = 2.0 * static_cast<double>(k.m()) * static_cast<double>(k.n() * k.k())};
}

inline Cost cost(const BatchedMatMul& k) {
  return {.bytes = bytes_of_views(k.a, k.b, k.c),
          .flops = 2.0 * static_cast<double>(k.c.size()) * static_cast<double>(k.k())};
}

inline Cost cost(const ColumnSum& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }

/// Returns the operations of one product with the weights of attention. Their masked half is not computed.
inline double attention_product_flops(const View& y, const View& log_sum_exp) {
  return static_cast<double>(y.size()) * static_cast<double>(log_sum_exp.shape[2]);
}

inline double bytes_of_views(const QueryKeyValue& qkv) { return bytes_of_views(qkv.q, qkv.k, qkv.v); }

inline Cost cost(const CausalAttentionForward& k) {
  return {.bytes = bytes_of_views(k.qkv) + bytes_of_views(k.y, k.log_sum_exp),
          .flops = 2.0 * attention_product_flops(k.y, k.log_sum_exp)};
}

/// Counts five products: the weights again, then the gradients of weights, values, queries and keys.
inline Cost cost(const CausalAttentionBackward& k) {
  return {.bytes = bytes_of_views(k.qkv) + bytes_of_views(k.dqkv) +
                   bytes_of_views(k.y, k.log_sum_exp, k.dy, k.dqkv_sum),
          .flops = 5.0 * attention_product_flops(k.y, k.log_sum_exp)};
}

inline Cost cost(const LayerNormForward& k) {
  return {.bytes = bytes_of_views(k.x, k.residual, k.weight, k.bias, k.sum, k.y, k.mean, k.rstd)};
}

inline Cost cost(const LayerNormBackward& k) {
  return {.bytes = bytes_of_views(k.x, k.weight, k.mean, k.rstd, k.dy, k.carried, k.dx, k.dweight, k.dbias,
                                  k.dx_sum)};
}

inline Cost cost(const RotaryTable& k) { return {.bytes = bytes_of_views(k.frequencies, k.positions, k.y)}; }

inline Cost cost(const Rotate& k) { return {.bytes = bytes_of_views(k.x, k.table, k.y)}; }

inline Cost cost(const SwigluForward& k) { return {.bytes = bytes_of_views(k.gate, k.up, k.y)}; }

inline Cost cost(const SwigluBackward& k) {
  return {.bytes = bytes_of_views(k.gate, k.up, k.dy, k.dgate, k.dup)};
}

inline Cost cost(const CrossEntropy& k) {
  return {.bytes = bytes_of_views(k.logits, k.targets, k.losses, k.dlogits, k.scale)};
}

inline Cost cost(const InverseCount& k) { return {.bytes = bytes_of_views(k.targets, k.y)}; }

/// Counts the rows that are looked up. The rest of the table is not read.
inline Cost cost(const EmbeddingForward& k) { return {.bytes = bytes_of_views(k.ids, k.y, k.y)}; }

inline Cost cost(const EmbeddingBackward& k) { return {.bytes = bytes_of_views(k.ids, k.dy, k.dtable)}; }

inline Cost cost(const AddPositions& k) { return {.bytes = bytes_of_views(k.x, k.table, k.y)}; }

inline Cost cost(const AddPositionsBackward& k) { return {.bytes = bytes_of_views(k.dy, k.dtable)}; }

inline Cost cost(const Sum& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }

inline Cost cost(const Multiply& k) { return {.bytes = bytes_of_views(k.a, k.b, k.y)}; }
inline Cost cost(const Add& k) { return {.bytes = bytes_of_views(k.a, k.b, k.y)}; }
inline Cost cost(const Power& k) { return {.bytes = bytes_of_views(k.a, k.b, k.y)}; }
inline Cost cost(const Maximum& k) { return {.bytes = bytes_of_views(k.a, k.b, k.y)}; }
inline Cost cost(const Compare& k) { return {.bytes = bytes_of_views(k.a, k.b, k.y)}; }
inline Cost cost(const Where& k) { return {.bytes = bytes_of_views(k.mask, k.a, k.b, k.y)}; }
inline Cost cost(const SigmoidForward& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }
inline Cost cost(const SiluForward& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }
inline Cost cost(const SiluBackward& k) { return {.bytes = bytes_of_views(k.x, k.dy, k.dx)}; }
inline Cost cost(const Sqrt& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }
inline Cost cost(const DimensionExtreme& k) { return {.bytes = bytes_of_views(k.x, k.y, k.places)}; }

/// Each row is read and written.
inline Cost cost(const CopyRows& k) {
  return {.bytes = 2.0 * static_cast<double>(k.rows * k.length * bytes(k.x.dtype))};
}

inline Cost cost(const Scale& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }

inline Cost cost(const Fill& k) { return {.bytes = bytes_of_views(k.y)}; }

inline Cost cost(const Copy& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }

inline Cost cost(const SetStep& k) { return {.bytes = bytes_of_views(k.y)}; }

inline Cost cost(const SetValues& k) { return {.bytes = bytes_of_views(k.y)}; }

inline Cost cost(const BlockSquares& k) { return {.bytes = bytes_of_views(k.x, k.y)}; }

inline Cost cost(const ClipFactor& k) {
  return {.bytes = bytes_of_views(k.squares, k.norm, k.factor, k.scale)};
}

/// Parameter and moments are read and written. The gradient is read and the copy written.
inline Cost cost(const AdamWStep& k) {
  Cost sum;
  for (const AdamWSlice& slice : k.slices)
    sum.bytes += 2 * bytes_of_views(slice.parameter, slice.first_moment, slice.second_moment) +
                 bytes_of_views(slice.gradient, slice.compute_copy);
  return sum;
}

}  // namespace lockstep
