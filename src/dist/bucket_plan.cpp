// SPDX-License-Identifier: Apache-2.0
#include "dist/bucket_plan.h"

#include <algorithm>

#include "core/error.h"

namespace lockstep {

BucketPlan::BucketPlan(std::span<const int64_t> parameter_sizes, int64_t bucket_bytes, int64_t reserved)
    : offsets(parameter_sizes.size()), bucket_of(parameter_sizes.size()) {
  expect(bucket_bytes > 0, "buckets of ", bucket_bytes, " bytes");
  const auto aligned = [](int64_t size) { return (size + alignment - 1) / alignment * alignment; };
  constexpr int64_t first_bucket_bytes = int64_t{1} << 20;
  elements = aligned(reserved);
  Bucket open;
  const auto close = [&] {
    if (open.parameters.empty() && elements == open.begin) return;
    open.end = elements;
    buckets.push_back(open);
    open = {.begin = elements, .end = elements, .parameters = {}};
  };
  for (int parameter = static_cast<int>(parameter_sizes.size()) - 1; parameter >= 0; --parameter) {
    const auto p = static_cast<size_t>(parameter);
    offsets[p] = elements;
    bucket_of[p] = static_cast<int>(buckets.size());
    open.parameters.push_back(parameter);
    elements += aligned(parameter_sizes[p]);
    const int64_t limit = buckets.empty() ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes;
    if ((elements - open.begin) * 4 >= limit) close();
  }
  close();
}

}  // namespace lockstep
