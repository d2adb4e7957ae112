// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/examples.h"
#include "lockstep/data/read_corpus.h"

namespace lockstep {

/// The properties of an encoded text that are known before it is encoded.
struct TokenLayout {
  uint64_t key = 0;  ///< identifies the text and the tokenizer
  int64_t vocabulary_size = 0;
  int64_t answers = 0;  ///< of examples: EncodedExamples::marks
};

/// An encoded text in the format of its file: a header with a checksum, marks (where each answer of an
/// example begins and where it ends) and ids. An id has 16 bits if the vocabulary has at most 65536
/// tokens, else 32.
class TokenImage {
 public:
  TokenImage() = default;
  /// Empty if the bytes are damaged. The checksum is compared only if `verified` is true.
  TokenImage(Bytes bytes, uint64_t key, bool verified);
  /// Opens a file. Empty if there is none or it is damaged.
  static TokenImage of_file(const std::string& path, uint64_t key, bool verified);

  explicit operator bool() const { return bytes_.size() > 0; }
  const Bytes& bytes() const { return bytes_; }
  Tokens tokens() const;
  Marks marks() const;

 private:
  Bytes bytes_;
};

/// Encodes a text on rank 0. Calls its argument with part after part of the ids and the marks.
using Encode = std::function<void(const TakeIds&)>;

/// Returns the same image on all ranks: that of an earlier run, from the cache folder under the key, or that
/// of `encode`, which is written to a file there part by part. The ranks of a host read one file. Hosts with
/// another cache folder get the image from rank 0. If no file can be written, each rank keeps it in memory.
/// All ranks call it and get `encode`'s UserError.
TokenImage shared_tokens(const World& world, const TokenLayout& layout, const Encode& encode);

/// Returns the image of `encode` in the memory of each rank: for texts too small for a file. All ranks call
/// it and get `encode`'s UserError.
TokenImage broadcast_tokens(const World& world, const TokenLayout& layout, const Encode& encode);

}  // namespace lockstep
