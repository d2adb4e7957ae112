// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parameters/parameter_space.h"
#include "snapshot/parameters_hash.h"

namespace lockstep {

/// A tensor in a file, and its place in a flat buffer, which says where its blocks begin.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Range place;
  int64_t begin = 0;  ///< of its bytes in the file

  int64_t bytes() const { return place.size() * lockstep::bytes(dtype); }
  int64_t end() const { return begin + bytes(); }
  /// The part of the file that these elements of the buffer are.
  Range bytes_of(Range elements) const;
  /// The elements of the buffer in this part of the file.
  Range elements_of(Range bytes) const;
  /// These elements and those beside them of blocks that they only begin or end in.
  Range whole_blocks(Range elements) const;
};

/// The checksums of the tensors of one file. A tensor's is the XXH3-64 of those of its blocks, 8 bytes each,
/// little-endian; its blocks are what multiples of 4096 elements of the flat buffer cut it into. So it is the
/// same whoever computed which blocks, in whatever order.
class TensorSums {
 public:
  /// Keeps a reference to the tensors, which are in the order of their bytes.
  explicit TensorSums(const std::vector<StoredTensor>& tensors);

  /// What the file holds from byte `begin` on. A block counts if it came whole, in one or in successive
  /// calls.
  void take(int64_t begin, std::span<const std::byte> bytes);
  /// Those that another rank has computed. Where both have a block they have to agree.
  void add(const std::string& packed);
  /// For add(): the blocks that are known, of the tensors that are `wanted` ([tensor]).
  std::string packed(const std::vector<bool>& wanted) const;

  /// Nothing while blocks are missing, or where ranks differ.
  std::optional<uint64_t> of(size_t tensor) const;

 private:
  struct Sum {
    std::vector<uint64_t> blocks;
    std::vector<bool> is_known;
    size_t known = 0;
    bool is_disputed = false;
  };
  void set(size_t tensor, size_t block, uint64_t hash);

  const std::vector<StoredTensor>& tensors_;
  std::vector<Sum> sums_;
  Hasher running_;     ///< of the block that came in part
  int64_t next_ = -1;  ///< byte of the file where that goes on
};

/// Texts of any content as one, and back.
std::string pack(std::span<const std::string> texts);
std::vector<std::string> unpack(const std::string& packed);

}  // namespace lockstep
