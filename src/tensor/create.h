// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// Returns a new tensor on the current stream unless another is given.
Tensor empty(const Shape& shape, DType dtype = DType::f32, const Stream& stream = current_stream());
Tensor empty_like(const Tensor& tensor);
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
            const Stream& stream = current_stream());

/// Returns a tensor with these values. Throws Error if their number does not match the shape.
template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape);

/// Returns the tensor in memory that the stream's device can read. This is the tensor itself if both are on
/// the CPU. Else it is a copy off the tape.
Tensor to_stream(const Tensor& tensor, const Stream& stream);

/// Returns the values in order as doubles. Any dtype and device is possible. In a dry run they are zeros.
std::vector<double> to_doubles(const Tensor& tensor);

/// Returns the single value of a one-element tensor.
double item(const Tensor& tensor);

/// Copies the values of `source` into `target` (same size and dtype), between any two devices.
void copy(const Tensor& source, const Tensor& target);

/// Fills with N(mean, std^2), and fill_uniform() with U[low, high). Each value is a function of (seed,
/// stream_id, element index) alone, equal on all ranks. `stream_id` is the parameter's position in the model.
/// With `first` the tensor gets the values of elements [first, first + size) of a larger one.
void fill_normal(const Tensor& tensor, double mean, double std, uint64_t seed, uint32_t stream_id,
                 int64_t first = 0);
void fill_uniform(const Tensor& tensor, double low, double high, uint64_t seed, uint32_t stream_id,
                  int64_t first = 0);
void fill(const Tensor& tensor, double value);

}  // namespace lockstep
