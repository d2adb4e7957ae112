// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// The ids of a text or a part of it. An id has 16 or 32 bits. The ids are in this process's memory or in a
/// file that ranks map together. Copies share the memory.
class Tokens {
 public:
  Tokens() = default;
  Tokens(std::vector<int32_t> ids);  // NOLINT(google-explicit-constructor): what a tokenizer returns
  /// Uses `memory` with `count` ids of 2 (unsigned) or 4 bytes each, aligned to that size.
  Tokens(std::shared_ptr<const std::byte> memory, int64_t count, int bytes_each);

  int64_t size() const { return count_; }
  int32_t operator[](int64_t i) const;
  /// Writes the ids [begin, begin + count) to `ids`.
  void copy(int64_t begin, int64_t count, int32_t* ids) const;
  Tokens slice(int64_t begin, int64_t end) const;

 private:
  std::shared_ptr<const std::byte> memory_;
  int64_t count_ = 0;
  int bytes_each_ = 4;
};

}  // namespace lockstep
