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

/// An encoded text in the format of its file: a header with a checksum, marks (where the answer of each
/// example begins and where the example ends) and ids. An id has 16 bits if the vocabulary has at most 65536
/// tokens, else 32.
class TokenImage {
 public:
  TokenImage() = default;
  /// Makes an image in memory. `key` identifies the text and the tokenizer.
  TokenImage(uint64_t key, const std::vector<int32_t>& ids, std::span<const int64_t> marks,
             int64_t vocabulary_size);
  /// Takes the bytes of an image from another rank. Empty if they are damaged.
  TokenImage(uint64_t key, std::shared_ptr<const std::byte> memory, int64_t bytes);
  /// Maps a file. Empty if there is none or it is damaged. The checksum is compared only if `verified` is
  /// true.
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

/// Returns the same image on all ranks: that of an earlier run, from the cache folder under `key`, or that of
/// `encode` on rank 0. The ranks of a host map one file. Hosts with another cache folder get the image from
/// rank 0. If no file can be written, each rank keeps it in memory. All ranks call it and get `encode`'s
/// UserError.
TokenImage shared_tokens(const World& world, uint64_t key, const std::function<TokenImage()>& encode);

/// Returns the image of `encode` on rank 0, in the memory of each rank: for texts too small for a file. All
/// ranks call it and get `encode`'s UserError.
TokenImage broadcast_tokens(const World& world, uint64_t key, const std::function<TokenImage()>& encode);

}  // namespace lockstep
