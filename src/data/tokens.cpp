// SPDX-License-Identifier: Apache-2.0
#include "data/tokens.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lockstep {

Tokens::Tokens(std::vector<int32_t> ids) : count_(std::ssize(ids)) {
  const auto owner = std::make_shared<const std::vector<int32_t>>(std::move(ids));
  memory_ = {owner, reinterpret_cast<const std::byte*>(owner->data())};
}

Tokens::Tokens(std::shared_ptr<const std::byte> memory, int64_t count, int bytes_each)
    : memory_(std::move(memory)), count_(count), bytes_each_(bytes_each) {
  expect(bytes_each == 2 || bytes_each == 4, "ids of ", bytes_each, " bytes");
}

int32_t Tokens::operator[](int64_t i) const {
  int32_t id = 0;
  copy(i, 1, &id);
  return id;
}

void Tokens::copy(int64_t begin, int64_t count, int32_t* ids) const {
  expect(begin >= 0 && count >= 0 && begin + count <= count_, "tokens [", begin, ", ", begin + count, ") of ",
         count_);
  if (count == 0) return;
  const std::byte* const first = memory_.get() + begin * bytes_each_;
  if (bytes_each_ == 4)
    std::memcpy(ids, first, static_cast<size_t>(count) * 4);
  else
    std::copy_n(reinterpret_cast<const uint16_t*>(first), count, ids);
}

Tokens Tokens::slice(int64_t begin, int64_t end) const {
  expect(begin >= 0 && begin <= end && end <= count_, "tokens [", begin, ", ", end, ") of ", count_);
  Tokens part = *this;
  part.memory_ = {memory_, memory_.get() + begin * bytes_each_};
  part.count_ = end - begin;
  return part;
}

}  // namespace lockstep
