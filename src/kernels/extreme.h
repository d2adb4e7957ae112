// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

enum class Extreme { largest, smallest };

/// y[o, i] = the largest or smallest x[o, n, i] over n, and places[o, i] = its n. A NaN counts as more
/// extreme than every number. The first of equal values counts. The result depends on its own terms alone,
/// and on no order in which they are compared.
struct DimensionExtreme {
  static constexpr const char* name = "dimension_extreme";
  Extreme extreme = Extreme::largest;
  View x;             ///< [outer, count, inner], stored in any shape; any dtype
  View y;             ///< [outer, inner], stored in any shape; dtype of x; may be empty
  View places;        ///< like y in i32; may be empty
  int64_t count = 1;  ///< at least 1
  int64_t inner = 1;  ///< at least 1

  int64_t outer() const { return x.size() / (count * inner); }
  void check() const {
    expect(count >= 1 && count <= int64_t{1} << 31 && inner >= 1 && x.size() % (count * inner) == 0, "x is ",
           x.shape, ": not [outer, ", count, ", ", inner, "]");
    expect(!y || (y.size() == outer() * inner && y.dtype == x.dtype), "y is ", y.shape, " ", y.dtype,
           ", x is ", x.shape, " ", x.dtype);
    expect(!places || (places.size() == outer() * inner && places.dtype == DType::i32), "places is ",
           places.shape, " ", places.dtype, ", x is ", x.shape);
  }
};
void run(CpuStream, const DimensionExtreme&);
void run(CudaStream, const DimensionExtreme&);

/// dx[o, n, i] = dy[o, i] where n is places[o, i], else 0.
struct ExtremeBackward {
  static constexpr const char* name = "extreme_backward";
  View dy;      ///< [outer, inner], stored in any shape
  View places;  ///< like dy in i32
  View dx;      ///< [outer, count, inner], stored in any shape; dtype of dy
  int64_t count = 1;
  int64_t inner = 1;

  void check() const {
    expect(places.size() == dy.size() && places.dtype == DType::i32 && dx.size() == dy.size() * count &&
               dx.dtype == dy.dtype && inner >= 1 && dy.size() % inner == 0,
           "dy is ", dy.shape, " ", dy.dtype, ", places is ", places.shape, " ", places.dtype, ", dx is ",
           dx.shape, " ", dx.dtype);
  }
};
void run(CpuStream, const ExtremeBackward&);
void run(CudaStream, const ExtremeBackward&);

}  // namespace lockstep
