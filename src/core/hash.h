// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// An incremental XXH3-64 (seed 0) of bytes that arrive in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void add(std::span<const std::byte> piece);
  void reset();
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the XXH3-64 (seed 0) of some bytes.
uint64_t hash_of(std::string_view bytes);

/// Returns a hash as 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace lockstep
