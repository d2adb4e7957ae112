// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "data/bytes.h"

namespace lockstep {

/// The ids of a text or a part of it. An id has 16 or 32 bits. The ids are in this process's memory or in a
/// file that ranks read together. Copies share them.
class Tokens {
 public:
  Tokens() = default;
  Tokens(std::vector<int32_t> ids);  // NOLINT(google-explicit-constructor): what a tokenizer returns
  /// Uses `count` ids of 2 (unsigned) or 4 bytes each, from byte `begin` on.
  Tokens(Bytes bytes, int64_t begin, int64_t count, int bytes_each);

  int64_t size() const { return count_; }
  /// Writes the ids [begin, begin + count) to `ids`.
  void copy(int64_t begin, int64_t count, int32_t* ids) const;
  Tokens slice(int64_t begin, int64_t end) const;

 private:
  Bytes bytes_;
  int64_t begin_ = 0;
  int64_t count_ = 0;
  int bytes_each_ = 4;
};

}  // namespace lockstep
