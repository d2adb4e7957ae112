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

/// Tensors and text as a safetensors file holds them: a JSON header, then the data, little-endian and
/// aligned.
struct SafeTensors {
  std::vector<NamedTensor> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
};

/// What the header of a file says of one tensor.
struct SafeTensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int64_t end = 0;  ///< of its bytes among the data; they begin where those of the tensor before end

  int64_t bytes() const { return shape.elements() * lockstep::bytes(dtype); }
};

/// What a file begins with.
struct SafeTensorsHeader {
  static constexpr size_t length_bytes = sizeof(uint64_t);

  std::vector<SafeTensorsEntry> entries;  ///< in the order of their data
  std::map<std::string, std::string> metadata = {};
  int64_t data_bytes = 0;  ///< as parse() found them

  /// Its bytes, a multiple of 8: the length of the text and the text. Sets the entries' ends.
  std::string to_bytes();
  /// The length of the text behind these length_bytes.
  static uint64_t text_bytes(std::string_view first_bytes);
  /// Reads the text, made by anybody, but for tensors that are `ignored`, of any dtype. Throws UserError
  /// saying what is wrong with it.
  static SafeTensorsHeader parse(std::string_view text,
                                 const std::function<bool(const std::string& name)>& ignored = {});
};

/// The bytes of such a file. F32, F64, BF16, F16 and I32 tensors on any device; those read back are on the
/// CPU.
std::string to_safetensors(const SafeTensors& content);

/// The same file as pieces of memory, with no second copy of tensors that are on the CPU.
class SafeTensorsPieces {
 public:
  explicit SafeTensorsPieces(const SafeTensors& content);

  /// The header, then the data of each tensor. Valid as long as this object.
  std::vector<std::span<const std::byte>> pieces() const;

 private:
  std::string header_;
  std::vector<Tensor> tensors_;
};

/// Reads a file that comes piece after piece, bytes made by anybody, and keeps of it no more than its header.
/// Throws UserError saying what is wrong with it.
class SafeTensorsReader {
 public:
  /// The tensors that receive the data of these entries, each of an entry's bytes; an empty one: none does.
  using Places = std::function<std::vector<Tensor>(const std::vector<SafeTensorsEntry>&)>;

  explicit SafeTensorsReader(Places places) : places_(std::move(places)) {}

  void take(std::span<const std::byte> piece);
  /// After the last piece.
  void finish() const;
  const std::map<std::string, std::string>& metadata() const { return parsed_.metadata; }

 private:
  bool read_header(std::span<const std::byte>& piece);
  void parse_header();

  Places places_;
  std::string header_;  ///< with its length in front, as far as it has come
  SafeTensorsHeader parsed_;
  std::vector<Tensor> targets_;  ///< of the entries, once the header is whole
  bool has_header_ = false;
  int64_t position_ = 0;  ///< in the data
  size_t next_ = 0;       ///< entry whose bytes come next
};

/// The file of these bytes, made by anybody. Throws UserError naming `origin` and what is wrong.
SafeTensors from_safetensors(const std::string& bytes, const std::string& origin);

/// Reads a file. Throws UserError if it cannot be read or is not such a file.
SafeTensors load_safetensors(const std::string& path);

/// Copies tensors by name. Throws UserError naming one that is missing or has another shape; `what` says of
/// what.
void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what);

}  // namespace lockstep
