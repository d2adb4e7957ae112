// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/memory.h"
#include "core/stream.h"

namespace lockstep {

/// A block of memory that tensors share, on the stream it was made for.
struct Storage {
  std::shared_ptr<std::byte> data;  ///< own memory or a part of another owner's memory, kept alive by this
  int64_t bytes = 0;
  Stream stream;

  static std::shared_ptr<Storage> make(int64_t bytes, const Stream& stream) {
    return std::make_shared<Storage>(Storage{allocate(bytes, stream), bytes, stream});
  }
};

}  // namespace lockstep
