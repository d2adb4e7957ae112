// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// zlib's CRC-32, byte by byte.
class Crc32 {
 public:
  Crc32() {
    for (uint32_t i = 0; i < 256; ++i) {
      table_[i] = i;
      for (int bit = 0; bit < 8; ++bit) table_[i] = table_[i] >> 1 ^ (table_[i] & 1 ? 0xEDB88320u : 0);
    }
  }
  void add_byte(uint32_t byte) { state_ = table_[(state_ ^ byte) & 255] ^ state_ >> 8; }
  /// Adds a number as four bytes, the lowest first.
  void add(int32_t number) {
    for (int shift = 0; shift < 32; shift += 8) add_byte(static_cast<uint32_t>(number) >> shift & 255);
  }
  void add(std::string_view bytes) {
    for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte));
  }
  uint32_t value() const { return ~state_; }

 private:
  std::array<uint32_t, 256> table_{};
  uint32_t state_ = ~0u;
};

}  // namespace lockstep
