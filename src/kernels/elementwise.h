// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// Throws Error unless `view` has the shape and dtype of `model`. The message names the view by `what`.
inline void expect_like(const View& view, const View& model, const char* what) {
  expect(view.shape == model.shape && view.dtype == model.dtype, what, " is ", view.shape, " ", view.dtype,
         " where ", model.shape, " ", model.dtype, " is needed");
}

/// y = factor * x. The factor is first rounded to the type in which x is computed.
struct Scale {
  static constexpr const char* name = "scale";
  View x;  ///< any shape
  View y;  ///< like x; may alias x
  double factor = 1.0;

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const Scale&);
void run(CudaStream, const Scale&);

/// y = factor[0] * x. The factor is known only where the kernel runs.
struct ScaleBy {
  static constexpr const char* name = "scale_by";
  View x;       ///< any shape
  View factor;  ///< one element, f32 for 16-bit x
  View y;       ///< like x; may alias x

  void check() const {
    expect(factor.size() == 1 && factor.dtype == accumulator_dtype(x.dtype), "factor is ", factor.shape, " ",
           factor.dtype, ", not one ", accumulator_dtype(x.dtype));
    expect_like(y, x, "y");
  }
};
void run(CpuStream, const ScaleBy&);
void run(CudaStream, const ScaleBy&);

/// y = max(x, 0); NaN stays NaN.
struct ReluForward {
  static constexpr const char* name = "relu_forward";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const ReluForward&);
void run(CudaStream, const ReluForward&);

/// dx = dy where x > 0, else 0. The output of the forward also serves as x, because y > 0 exactly where
/// x > 0.
struct ReluBackward {
  static constexpr const char* name = "relu_backward";
  View x;   ///< the input (or output) of the forward
  View dy;  ///< like x
  View dx;  ///< like x; may alias dy

  void check() const {
    expect_like(dy, x, "dy");
    expect_like(dx, x, "dx");
  }
};
void run(CpuStream, const ReluBackward&);
void run(CudaStream, const ReluBackward&);

/// y = tanh(x).
struct TanhForward {
  static constexpr const char* name = "tanh_forward";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const TanhForward&);
void run(CudaStream, const TanhForward&);

/// dx = dy * (1 - y^2).
struct TanhBackward {
  static constexpr const char* name = "tanh_backward";
  View y;   ///< the output of the forward
  View dy;  ///< like y
  View dx;  ///< like y; may alias dy

  void check() const {
    expect_like(dy, y, "dy");
    expect_like(dx, y, "dx");
  }
};
void run(CpuStream, const TanhBackward&);
void run(CudaStream, const TanhBackward&);

/// y = e^x; its gradient is dy * y. On a CPU an f32 result below the smallest normal number is 0.
struct Exp {
  static constexpr const char* name = "exp";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const Exp&);
void run(CudaStream, const Exp&);

/// y = the natural logarithm of x: -infinity at 0, NaN for negative x. Its gradient is dy / x.
struct Log {
  static constexpr const char* name = "log";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const Log&);
void run(CudaStream, const Log&);

/// y = the square root of x, rounded once: NaN for negative x. Its gradient is dy / (2 y).
struct Sqrt {
  static constexpr const char* name = "sqrt";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const Sqrt&);
void run(CudaStream, const Sqrt&);

/// y = 1 / sqrt(x): infinite at 0. Its gradient is -dy * y / (2 x).
struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const Rsqrt&);
void run(CudaStream, const Rsqrt&);

/// y = value everywhere; any dtype.
struct Fill {
  static constexpr const char* name = "fill";
  View y;  ///< any shape
  double value = 0.0;

  void check() const {}
};
void run(CpuStream, const Fill&);
void run(CudaStream, const Fill&);

/// y[i] = values[i] for i < count. On a GPU the values are arguments of the launch, so the host may discard
/// them at once. This is how the scalars of a step reach a recorded graph, whose memory holds y.
struct SetValues {
  static constexpr const char* name = "set_values";
  static constexpr int max_count = 8;
  View y;  ///< f64, at least `count` elements
  std::array<double, max_count> values = {};
  int count = 0;

  void check() const {
    expect(y.dtype == DType::f64 && count >= 0 && count <= max_count && count <= y.size(), count,
           " values for ", y.shape, " ", y.dtype);
  }
};
void run(CpuStream, const SetValues&);
void run(CudaStream, const SetValues&);

/// y = value modulo 2^32: sets the number of a step. On a GPU the value is an argument of the launch.
struct SetStep {
  static constexpr const char* name = "set_step";
  View y;  ///< i32, one element; RandomKey::device_step reads it as unsigned
  int64_t value = 0;

  void check() const {
    expect(y.dtype == DType::i32 && y.size() == 1, "y is ", y.shape, " ", y.dtype, ", not one i32");
  }
};
void run(CpuStream, const SetStep&);
void run(CudaStream, const SetStep&);

/// y = x; any dtype.
struct Copy {
  static constexpr const char* name = "copy";
  View x;  ///< any shape
  View y;  ///< any shape with x's number of elements, dtype of x; no overlap

  void check() const {
    expect(y.size() == x.size() && y.dtype == x.dtype, "y is ", y.shape, " ", y.dtype, ", x is ", x.shape,
           " ", x.dtype);
  }
};
void run(CpuStream, const Copy&);
void run(CudaStream, const Copy&);

/// y[b, t, c] = x[b, t, c] + table[t, c]: learned positions.
struct AddPositions {
  static constexpr const char* name = "add_positions";
  View x;      ///< [batch, time, columns]
  View table;  ///< [rows >= time, columns]
  View y;      ///< like x; may alias x

  void check() const {
    expect(x.shape.rank() == 3 && table.shape.rank() == 2 && table.shape[0] >= x.shape[1] &&
               table.shape[1] == x.shape[2] && table.dtype == x.dtype,
           "x is ", x.shape, ", which does not fit a table of positions ", table.shape);
    expect_like(y, x, "y");
  }
};
void run(CpuStream, const AddPositions&);
void run(CudaStream, const AddPositions&);

/// dtable[t, c] = sum over b of dy[b, t, c], in order of b. Rows from `time` on are zero.
struct AddPositionsBackward {
  static constexpr const char* name = "add_positions_backward";
  View dy;      ///< [batch, time, columns]
  View dtable;  ///< [rows >= time, columns], f32 for 16-bit dy

  void check() const {
    expect(dy.shape.rank() == 3 && dtable.shape.rank() == 2 && dtable.shape[0] >= dy.shape[1] &&
               dtable.shape[1] == dy.shape[2] && dtable.dtype == accumulator_dtype(dy.dtype),
           "dy is ", dy.shape, ", which does not fit a table of positions ", dtable.shape);
  }
};
void run(CpuStream, const AddPositionsBackward&);
void run(CudaStream, const AddPositionsBackward&);

}  // namespace lockstep
