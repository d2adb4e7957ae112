// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "data/tokens.h"

namespace lockstep {

/// An encoded text as it lies in a file: a header with a checksum, numbers that belong to it (where examples
/// begin and end), and ids of 16 bits each if the vocabulary allows, else of 32.
class TokenImage {
 public:
  TokenImage() = default;
  /// In memory. `key` tells what was encoded, and how.
  TokenImage(uint64_t key, const std::vector<int32_t>& ids, std::span<const int64_t> marks,
             int64_t vocabulary_size);
  /// What another rank has: empty if it is not whole.
  TokenImage(uint64_t key, std::shared_ptr<const std::byte> memory, int64_t bytes);
  /// Maps a file: empty if there is none or it is not whole. Its checksum is compared if it is to be
  /// `verified`.
  static TokenImage of_file(const std::string& path, uint64_t key, bool verified);

  explicit operator bool() const { return memory_ != nullptr; }
  std::span<const std::byte> bytes() const { return {memory_.get(), static_cast<size_t>(bytes_)}; }
  Tokens tokens() const;
  std::vector<int64_t> marks() const;

 private:
  bool is_whole(uint64_t key, bool verified) const;

  std::shared_ptr<const std::byte> memory_;
  int64_t bytes_ = 0;
};

/// The image that `encode` makes on rank 0, or that an earlier run has kept under `key` in the cache folder,
/// on all ranks: those of a host map one file. Hosts that share no cache get it from rank 0; where nothing
/// can be kept it lies in each rank's memory. All ranks call it, and all get the UserError of `encode`.
TokenImage shared_tokens(const World& world, uint64_t key, const std::function<TokenImage()>& encode);

/// The same for what is too small to be worth a file: in each rank's memory.
TokenImage broadcast_tokens(const World& world, uint64_t key, const std::function<TokenImage()>& encode);

}  // namespace lockstep
