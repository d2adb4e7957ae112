// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "kernels/values.h"
#include "support/cuda.h"

namespace lockstep::testing {

/// A copy on the GPU, `shift` elements past an aligned address.
class OnGpu {
 public:
  explicit OnGpu(Values values, int64_t shift = 0)
      : host_(std::move(values)),
        shift_(shift),
        memory_(allocate((host_.size() + shift) * bytes(host_.view().dtype), gpu_stream())) {
    copy_bytes(view().data, gpu_stream(), host_.view().data, cpu_stream(), host_.view().bytes());
  }
  /// Returns memory full of NaN. An element that no kernel writes stays NaN.
  static OnGpu poisoned(const Shape& shape, DType dtype, int64_t shift = 0) {
    Values values(shape, dtype);
    std::memset(values.view().data, 0xff, static_cast<size_t>(values.view().bytes()));
    return OnGpu(std::move(values), shift);
  }

  View view() {
    View view = host_.view();
    view.data = memory_.get() + shift_ * bytes(view.dtype);
    return view;
  }
  /// Copies the current values to the host and returns them.
  Values& values() {
    copy_bytes(host_.view().data, cpu_stream(), view().data, gpu_stream(), host_.view().bytes());
    return host_;
  }

 private:
  Values host_;
  int64_t shift_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace lockstep::testing
