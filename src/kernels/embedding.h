// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"

namespace lockstep {

/// y[i] = table[ids[i]]. On the CPU run() throws Error for an id outside the table, before it writes
/// anything.
struct EmbeddingForward {
  static constexpr const char* name = "embedding_forward";
  View ids;    ///< i32 [...], n of them
  View table;  ///< [rows, columns]
  View y;      ///< [..., columns], n rows

  void check() const {
    expect(table.shape.rank() == 2 && y.size() == ids.size() * table.shape[1] && y.dtype == table.dtype,
           "y is ", y.shape, ", ids are ", ids.shape, ", the table is ", table.shape);
  }
};
void run(CpuStream, const EmbeddingForward&);
void run(CudaStream, const EmbeddingForward&);

/// dtable[row] = sum of the dy[i] with ids[i] = row, in order of i; zero where a row is not used.
struct EmbeddingBackward {
  static constexpr const char* name = "embedding_backward";
  View ids;     ///< i32 [...], n of them
  View dy;      ///< [..., columns], n rows
  View dtable;  ///< [rows, columns], overwritten

  void check() const {
    expect(dtable.shape.rank() == 2 && dy.size() == ids.size() * dtable.shape[1] && dy.dtype == dtable.dtype,
           "dy is ", dy.shape, ", ids are ", ids.shape, ", dtable is ", dtable.shape);
  }
};
void run(CpuStream, const EmbeddingBackward&);
void run(CudaStream, const EmbeddingBackward&);

}  // namespace lockstep
