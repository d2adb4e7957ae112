// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/create.h"

#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/random_fill.h"

namespace lockstep {

Tensor empty(const Shape& shape, DType dtype, const Stream& stream) {
  return {Storage::make(shape.elements() * bytes(dtype), stream), 0, shape, dtype};
}

Tensor empty_like(const Tensor& tensor) { return empty(tensor.shape(), tensor.dtype(), tensor.stream()); }

Tensor zeros(const Shape& shape, DType dtype) { return full(shape, 0.0, dtype); }

Tensor full(const Shape& shape, double value, DType dtype, const Stream& stream) {
  Tensor tensor = empty(shape, dtype, stream);
  fill(tensor, value);
  return tensor;
}

template <class T>
Tensor from_values(const std::vector<T>& values, const Shape& shape) {
  expect(static_cast<int64_t>(values.size()) == shape.elements(), values.size(), " values for the shape ",
         shape);
  const Tensor tensor = empty(shape, dtype_of<T>);
  const View view = tensor.view();
  copy_bytes(view.data, tensor.stream(), values.data(), cpu_stream(), view.bytes());
  return tensor;
}
template Tensor from_values(const std::vector<float>&, const Shape&);
template Tensor from_values(const std::vector<double>&, const Shape&);
template Tensor from_values(const std::vector<int32_t>&, const Shape&);

Tensor to_stream(const Tensor& tensor, const Stream& stream) {
  if (device_of(tensor.stream()) == Device::cpu && device_of(stream) == Device::cpu) return tensor;
  const Tensor moved = empty(tensor.shape(), tensor.dtype(), stream);
  copy(tensor, moved);
  return moved;
}

std::vector<double> to_doubles(const Tensor& source) {
  if (mode_of(source.stream()).is_dry) return std::vector<double>(static_cast<size_t>(source.size()));
  const Tensor tensor = to_stream(source, cpu_stream());
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const View target{values.data(), tensor.shape(), DType::f64};
  launch(tensor.stream(), Convert{.x = tensor.view(), .y = target});
  return values;
}

double item(const Tensor& tensor) {
  expect(tensor && tensor.size() == 1, "item() needs a tensor of one element");
  return to_doubles(tensor)[0];
}

void copy(const Tensor& source, const Tensor& target) {
  const Device from = device_of(source.stream()), to = device_of(target.stream());
  if (from != to) {
    expect(source.size() == target.size() && source.dtype() == target.dtype(), "copying ", source.dtype(),
           source.shape(), " into ", target.dtype(), target.shape());
    return copy_bytes(target.view().data, target.stream(), source.view().data, source.stream(),
                      source.view().bytes());
  }
  launch(target.stream(), Copy{.x = source.view(), .y = target.view()});
}

void fill(const Tensor& tensor, double value) {
  launch(tensor.stream(), Fill{.y = tensor.view(), .value = value});
}

void fill_normal(const Tensor& tensor, double mean, double std, uint64_t seed, uint32_t stream_id,
                 int64_t first) {
  launch(tensor.stream(), FillNormal{.y = tensor.view(),
                                     .mean = mean,
                                     .std = std,
                                     .seed = seed,
                                     .stream_id = stream_id,
                                     .first = first});
}

void fill_uniform(const Tensor& tensor, double low, double high, uint64_t seed, uint32_t stream_id,
                  int64_t first) {
  launch(tensor.stream(), FillUniform{.y = tensor.view(),
                                      .low = low,
                                      .high = high,
                                      .seed = seed,
                                      .stream_id = stream_id,
                                      .first = first});
}

}  // namespace lockstep
