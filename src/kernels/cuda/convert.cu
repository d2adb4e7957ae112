// SPDX-License-Identifier: Apache-2.0

// Conversions between f32, bf16 and f16, and from i32 to them. Threads share the elements as in
// device/map.cuh. A group of elements fills 16 bytes of the wider type. Bytes: x once and y once, 6 per
// element from f32 to 16 bits. Bound: memory.

#include "lockstep/kernels/convert.h"
#include "lockstep/kernels/cuda/device/map.cuh"
#include "lockstep/kernels/elementwise.h"

namespace lockstep {
namespace {

/// Rounds an i32 to f32, as the first of two steps to 16 bits. Floats pass unchanged.
struct ToFloat {
  LOCKSTEP_DEVICE float operator()(float x) const { return x; }
  LOCKSTEP_DEVICE float operator()(int32_t x) const { return static_cast<float>(x); }
};

template <class X>
void convert_from(const CudaStream& stream, const Convert& k) {
  cuda::with_device_type(k.y.dtype, [&]<class Y>() {
    if constexpr (!std::is_same_v<X, Y>)  // equal types are copied
      cuda::map(stream, k.x.size(), ToFloat{}, static_cast<Y*>(k.y.data), static_cast<const X*>(k.x.data));
  });
}

}  // namespace

void run(CudaStream stream, const Convert& k) {
  if (k.x.dtype == k.y.dtype) return run(stream, Copy{.x = k.x, .y = k.y});
  if (k.x.dtype == DType::i32) return convert_from<int32_t>(stream, k);
  cuda::with_device_type(k.x.dtype, [&]<class X>() { convert_from<X>(stream, k); });
}

}  // namespace lockstep
