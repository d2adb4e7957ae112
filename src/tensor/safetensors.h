// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
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

/// Reads bytes made by anybody. Throws UserError naming `origin` and what is wrong with them.
SafeTensors from_safetensors(const std::string& bytes, const std::string& origin);

/// Reads a file. Throws UserError if it cannot be read or is not such a file.
SafeTensors load_safetensors(const std::string& path);

}  // namespace lockstep
