// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Bytes in a file or in memory. They do not change, any thread may read them, and copies share them. A file
/// is read with pread(). So its bytes never count as memory of the process, and a failing disk is an Error.
class Bytes {
 public:
  Bytes() = default;
  /// Keeps the elements of a vector or string.
  template <class Container>
  explicit Bytes(Container elements) {
    const auto owner = std::make_shared<const Container>(std::move(elements));
    memory_ = {owner, reinterpret_cast<const std::byte*>(owner->data())};
    size_ = std::ssize(std::as_bytes(std::span(*owner)));
  }
  Bytes(std::shared_ptr<const std::byte> memory, int64_t size) : memory_(std::move(memory)), size_(size) {}
  /// Opens a file. Throws UserError that names a file that cannot be read.
  static Bytes of_file(const std::string& path);

  int64_t size() const { return size_; }
  bool are_in_memory() const { return !file_; }
  /// Copies the bytes from `begin` on. Throws Error that names a file that cannot be read or is cut.
  void read(int64_t begin, std::span<std::byte> to) const;

 private:
  struct File;

  std::shared_ptr<const std::byte> memory_;
  std::shared_ptr<const File> file_;
  int64_t size_ = 0;
};

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
