// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// Tensors and text as a safetensors file holds them: a JSON header, then the data, little-endian and
/// aligned.
struct SafeTensors {
  std::vector<NamedTensor> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;
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

/// Reads bytes made by anybody. Throws UserError naming `origin` and what is wrong with them.
SafeTensors from_safetensors(const std::string& bytes, const std::string& origin);

/// Reads a file. Throws UserError if it cannot be read or is not such a file.
SafeTensors load_safetensors(const std::string& path);

/// Copies tensors by name. Throws UserError naming one that is missing or has another shape; `what` says of
/// what.
void restore_tensors(const std::vector<NamedTensor>& saved, const std::vector<NamedTensor>& targets,
                     const std::string& what);

}  // namespace lockstep
