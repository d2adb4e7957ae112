// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor/tensor.h"

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
  /// Reads the header's bytes from an untrusted file. Throws UserError that begins with `complaint` ("FILE is
  /// damaged") if the file ends before or the text is too long.
  static std::string read(const std::string& complaint, const ReadAt& read_at);
  /// Parses the text of an untrusted file. Skips tensors that are `ignored`; they may have any dtype. Throws
  /// UserError that describes the problem.
  static SafeTensorsHeader parse(std::string_view text,
                                 const std::function<bool(const std::string& name)>& ignored = {});
};

/// Returns the bytes of a safetensors file. Its tensors may be F32, F64, BF16, F16 or I32 on any device.
/// Reading the file returns them on the CPU.
std::string to_safetensors(const SafeTensors& content);

/// Parses the bytes of an untrusted file. Throws UserError that names `origin` and the problem.
SafeTensors from_safetensors(const std::string& bytes, const std::string& origin);

/// Reads a file. Throws UserError if it cannot be read or is not a safetensors file.
SafeTensors load_safetensors(const std::string& path);

/// Copies saved tensors to the targets of the same names. Throws UserError that names a target without a
/// saved tensor of its shape and dtype. Messages call the saved tensors `what`.
void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what);

}  // namespace lockstep
