// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// Contents of a safetensors file. The file is a JSON header, then the little-endian and aligned data.
struct SafeTensors {
  std::vector<NamedTensor> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// The header's entry for one tensor.
struct SafeTensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int64_t end = 0;  ///< end of its bytes in the data; they begin where the previous entry's end

  int64_t bytes() const { return shape.elements() * lockstep::bytes(dtype); }
};

/// The header of a safetensors file.
struct SafeTensorsHeader {
  static constexpr size_t length_bytes = sizeof(uint64_t);
  static constexpr uint64_t most_text_bytes = 100'000'000;  ///< the limit of the safetensors library

  std::vector<SafeTensorsEntry> entries;  ///< in the order of their data
  std::map<std::string, std::string> metadata = {};
  int64_t data_bytes = 0;  ///< size of the data, set by parse()

  /// Returns the header's bytes, a multiple of 8: the length of the text, then the text. Sets each entry's
  /// `end`. Throws UserError for more text than readers accept.
  std::string to_bytes();
  /// A function that returns bytes of a file from an offset on, or fewer at the end of the file.
  using ReadAt = std::function<std::string(int64_t begin, int64_t bytes)>;
  /// Reads the header's bytes from an untrusted file. Throws UserError that begins with the file's name if
  /// the file ends before or the text is too long.
  static std::string read(const std::string& name, const ReadAt& read_at);
  /// Parses the text of an untrusted file. Skips tensors that are `ignored`; they may have any dtype. Throws
  /// UserError that describes the problem.
  static SafeTensorsHeader parse(std::string_view text,
                                 const std::function<bool(const std::string& name)>& ignored = {});
};

/// Returns the bytes of a safetensors file. Its tensors may be F32, F64, BF16, F16 or I32 on any device.
/// Reading the file returns them on the CPU.
std::string to_safetensors(const SafeTensors& content);

/// A safetensors file as pieces of memory without a second copy of tensors that are on the CPU.
class SafeTensorsPieces {
 public:
  explicit SafeTensorsPieces(const SafeTensors& content);

  /// Returns the header, then the data of each tensor. The spans are valid as long as this object.
  std::vector<std::span<const std::byte>> pieces() const;

 private:
  std::string header_;
  std::vector<Tensor> tensors_;
};

/// A reader of an untrusted file that arrives piece by piece. It keeps only the header in memory. Throws
/// UserError that describes the problem.
class SafeTensorsReader {
 public:
  /// A function that returns a tensor for the data of each entry. The tensor has the entry's size in bytes.
  /// An empty tensor skips its entry.
  using Places = std::function<std::vector<Tensor>(const std::vector<SafeTensorsEntry>&)>;

  explicit SafeTensorsReader(Places places) : places_(std::move(places)) {}

  void take(std::span<const std::byte> piece);
  /// Checks after the last piece that the file is complete.
  void finish() const;
  const std::map<std::string, std::string>& metadata() const { return parsed_.metadata; }

 private:
  bool read_header(std::span<const std::byte>& piece);
  void parse_header();

  Places places_;
  std::string header_;  ///< its length and text as far as they have arrived
  SafeTensorsHeader parsed_;
  std::vector<Tensor> targets_;  ///< one per entry, once the header is complete
  bool has_header_ = false;
  int64_t position_ = 0;  ///< offset of the next byte in the data
  size_t next_ = 0;       ///< index of the entry whose bytes come next
};

/// Parses the bytes of an untrusted file. Throws UserError that names `origin` and the problem.
SafeTensors from_safetensors(const std::string& bytes, const std::string& origin);

/// Reads a file. Throws UserError if it cannot be read or is not a safetensors file.
SafeTensors load_safetensors(const std::string& path);

/// Copies saved tensors to the targets of the same names. Throws UserError that names a target without a
/// saved tensor of its shape and dtype. Messages call the saved tensors `what`.
void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what);

}  // namespace lockstep
