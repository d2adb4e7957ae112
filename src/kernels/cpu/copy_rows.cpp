// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/copy_rows.h"

#include "lockstep/kernels/cpu/map.h"

namespace lockstep {

void run(CpuStream stream, const CopyRows& k) {
  const int64_t size = bytes(k.x.dtype), length = k.length * size;
  if (length == 0) return;
  const auto* x = static_cast<const std::byte*>(k.x.data);
  auto* y = static_cast<std::byte*>(k.y.data);
  stream.for_each_chunk(k.rows, elementwise_grain / k.length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(y + row * k.y_stride * size, x + row * k.x_stride * size, static_cast<size_t>(length));
  });
}

}  // namespace lockstep
