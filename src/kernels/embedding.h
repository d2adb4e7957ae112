// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y[i] = table[ids[i]]. If an id is outside the table, the CPU throws Error before it writes anything. A GPU
/// writes a row of NaN for it.
struct EmbeddingForward {
  static constexpr const char* name = "embedding_forward";
  View ids;    ///< i32 [...], n ids
  View table;  ///< [rows, columns]
  View y;      ///< [..., columns], n rows

  void check() const {
    expect(table.shape.rank() == 2 && y.size() == ids.size() * table.shape[1] && y.dtype == table.dtype,
           "y is ", y.shape, ", ids are ", ids.shape, ", the table is ", table.shape);
  }
};
void run(CpuStream, const EmbeddingForward&);
void run(CudaStream, const EmbeddingForward&);

/// dtable[row] = sum of the dy[i] with ids[i] = row in the dtype of dtable, in order of i. A GPU adds runs of
/// 64 of these dy in order, then the sums of the runs. Unused rows are zero. If an id is outside the table,
/// the CPU throws Error and a GPU skips the id.
struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  View ids;           ///< i32 [...], n ids
  View dy;            ///< [..., columns], n rows
  View dtable;        ///< [rows, columns], overwritten; f32 for a 16-bit dy, else its dtype
  bool adds = false;  ///< adds the finished sums to dtable instead; unused rows do not change

  void check() const {
    expect(dtable.shape.rank() == 2 && dy.size() == ids.size() * dtable.shape[1], "dy is ", dy.shape,
           ", ids are ", ids.shape, ", dtable is ", dtable.shape);
    expect(dtable.dtype == accumulator_dtype(dy.dtype), "dtable is ", dtable.dtype, ", dy is ", dy.dtype);
  }
};
void run(CpuStream, const EmbeddingBackward&);
void run(CudaStream, const EmbeddingBackward&);

}  // namespace lockstep
