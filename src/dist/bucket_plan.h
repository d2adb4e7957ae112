// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "parameters/parameter_space.h"

namespace lockstep {

/// How a slot of gradients is cut. A slot begins with `reserved` elements for what is averaged as gradients
/// are and is none, which rank 0 finishes; then come the trainable elements of a space. Buckets are what
/// travels at once: whole blocks of 4096 elements, about 1 MiB first, so that communication starts early,
/// then about `bucket_bytes`. They may cut parameters; who owns what does not depend on them.
struct BucketPlan {
  static constexpr int64_t reserved = 64;

  struct Bucket {
    Range range;
    Ownership owned;  ///< parts of the range
  };

  /// `segments`: what each rank owns of the space.
  BucketPlan(int64_t trainable_elements, const Ownership& segments, int64_t bucket_bytes);
  BucketPlan(const ParameterSpace& space, int ranks, int64_t bucket_bytes);

  /// The buckets [first, second) that meet this range of the space.
  std::pair<int, int> buckets_of(Range in_space) const;

  int64_t elements;             ///< of a slot
  Ownership owned;              ///< of a slot
  std::vector<Bucket> buckets;  ///< in order, without gaps; at least one
};

}  // namespace lockstep
