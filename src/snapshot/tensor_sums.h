// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/hash.h"
#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

/// A tensor in a file, and its range in a flat buffer. The range determines where its blocks begin.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Range place;
  int64_t begin = 0;  ///< its first byte in the file

  int64_t bytes() const { return place.size() * lockstep::bytes(dtype); }
  int64_t end() const { return begin + bytes(); }
  /// Returns the bytes of the file that store these elements of the buffer.
  Range bytes_of(Range elements) const;
  /// Returns the elements of the buffer that these bytes of the file store.
  Range elements_of(Range bytes) const;
  /// Extends a range of elements to whole blocks, within the tensor.
  Range whole_blocks(Range elements) const;
};

/// The checksums of the tensors of one file. The checksum of a tensor is the XXH3-64 of the checksums of its
/// blocks, 8 bytes each, little-endian. Multiples of 4096 elements of the flat buffer cut a tensor into
/// blocks. So the checksum does not depend on which ranks compute which blocks, nor on their order.
class TensorSums {
 public:
  /// Keeps a reference to the tensors, which are in the order of their bytes.
  explicit TensorSums(const std::vector<StoredTensor>& tensors);

  /// Adds bytes of the file from `begin` on. A block counts if it arrives whole, in one or successive calls.
  void take(int64_t begin, std::span<const std::byte> bytes);
  /// Adds the checksums of blocks that another rank computed. They have to agree with those already known.
  void add(const std::string& packed);
  /// Returns the checksums of the known blocks of `wanted` tensors ([tensor]), for add() on another rank.
  std::string packed(const std::vector<bool>& wanted) const;

  /// Returns the checksum of a tensor. Returns nothing while blocks are missing, or if ranks differ.
  std::optional<uint64_t> of(size_t tensor) const;

 private:
  struct Sum {
    std::vector<std::optional<uint64_t>> blocks;
    bool is_disputed = false;
  };
  void set(size_t tensor, size_t block, uint64_t hash);

  const std::vector<StoredTensor>& tensors_;
  std::vector<Sum> sums_;
  Hasher running_;     ///< hash of a block that has arrived in part
  int64_t next_ = -1;  ///< byte of the file where that block continues
};

/// Joins texts of any content into one.
std::string pack(std::span<const std::string> texts);
/// Splits a text that pack() made.
std::vector<std::string> unpack(const std::string& packed);

}  // namespace lockstep
