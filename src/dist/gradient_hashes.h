// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/parameters/parameter_layout.h"

namespace lockstep::detail {

/// A block of 4096 elements of a parameter, the last one of fewer.
struct GradientBlock {
  static constexpr int64_t elements = 4096;
  int64_t parameter = 0;
  int64_t index = 0;  ///< within the parameter
};

/// Hashes of the gradients of one micro-batch, a hash for each block. Two NaNs are equal, because processors
/// give them different signs and payloads. 0 and -0 differ.
class GradientHashes {
 public:
  explicit GradientHashes(const ParameterLayout& layout);

  /// Adds the gradient of a parameter. Waits for a GPU.
  void add(size_t parameter, const Tensor& gradient);
  /// Keeps the elements of this block when they are added.
  void keep(GradientBlock block) { kept_block_ = block; }

  /// Returns the hash of all blocks.
  uint64_t value() const;
  /// Returns the hash of each block, parameter by parameter in the order of the layout.
  const std::vector<uint64_t>& blocks() const { return blocks_; }
  /// Returns the bits of the kept block, [GradientBlock::elements] with zeros at the end.
  const std::vector<uint32_t>& kept() const { return kept_; }
  /// Returns the first block with another hash in `others`, in the order in which parameters were added.
  GradientBlock first_difference(const std::vector<uint64_t>& others) const;

 private:
  std::vector<int64_t> first_;  ///< [parameter + 1], its first block
  std::vector<size_t> order_;   ///< parameters in the order in which they were added
  std::vector<uint64_t> blocks_;
  std::optional<GradientBlock> kept_block_;
  std::vector<uint32_t> kept_;
};

/// A scope in which a backward adds the gradient of each trained parameter to hashes, as soon as it is
/// complete. The bits of the gradients do not depend on it.
class HashedBackward {
 public:
  enum class Then {
    pass_on,  ///< gradients then go where they would go without the scope
    drop,     ///< gradients are computed in memory of their own, and nothing else receives them
  };

  HashedBackward(const ParameterLayout& layout, GradientHashes& hashes, Then then);
  ~HashedBackward();
  HashedBackward(const HashedBackward&) = delete;
  HashedBackward& operator=(const HashedBackward&) = delete;

 private:
  /// The state of a leaf before the scope, and where its gradient is to be added.
  struct Leaf {
    std::function<void()> begin, ready;
    Tensor buffer;
    bool accumulate = false;
    Tensor sum;
  };
  void begin(size_t parameter);
  void ready(size_t parameter);

  const ParameterLayout& layout_;
  GradientHashes& hashes_;
  Then then_;
  std::vector<Leaf> leaves_;  ///< [parameter]
};

}  // namespace lockstep::detail
