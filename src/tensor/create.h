// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// New tensors on the current stream unless another is given.
Tensor empty(const Shape& shape, DType dtype = DType::f32, const Stream& stream = current_stream());
Tensor empty_like(const Tensor& tensor);
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
            const Stream& stream = current_stream());

/// A tensor with these values. Throws Error if their number is not the shape's.
template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape);

/// The tensor where the stream's device can read it: itself, or a copy off the tape.
Tensor to_stream(const Tensor& tensor, const Stream& stream);

/// The values in order, converted to double; any dtype, any device. Zeros in a dry run.
std::vector<double> to_doubles(const Tensor& tensor);

/// The single value of a one-element tensor.
double item(const Tensor& tensor);

/// Copies the values of `source` into `target` (same size and dtype), between any two devices.
void copy(const Tensor& source, const Tensor& target);

/// Fills with a N(mean, std) or a U[low, high) that is a function of (seed, stream_id, element index) alone:
/// the same on every rank. `stream_id` is the parameter's place in the model. With `first` the tensor is
/// elements [first, first + size) of a larger one and gets their values.
void fill_normal(const Tensor& tensor, double mean, double std, uint64_t seed, uint32_t stream_id,
                 int64_t first = 0);
void fill_uniform(const Tensor& tensor, double low, double high, uint64_t seed, uint32_t stream_id,
                  int64_t first = 0);
void fill(const Tensor& tensor, double value);

}  // namespace lockstep
