// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// A run of parameters whose gradients travel together: elements [begin, end) of the flat space.
struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int> parameters;  ///< in the order in which they are listed
};

/// Where each parameter lies in one flat space, and how that space is cut into buckets. Parameters lie in
/// reverse order of registration, which is about the order in which their gradients become ready; each starts
/// on a multiple of 16 elements (64 bytes of fp32). The first bucket closes at 1 MiB, so that communication
/// starts early, the others at `bucket_bytes`. It begins with the `reserved` elements, which belong to no
/// parameter and travel with it.
struct BucketPlan {
  static constexpr int64_t alignment = 16;

  BucketPlan(std::span<const int64_t> parameter_sizes, int64_t bucket_bytes, int64_t reserved = 0);

  std::vector<int64_t> offsets;  ///< of each parameter, in elements, in order of registration
  std::vector<int> bucket_of;    ///< of each parameter
  std::vector<Bucket> buckets;   ///< in flat order, without gaps
  int64_t elements = 0;          ///< of the flat space, padding included
};

}  // namespace lockstep
