// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/core/shape.h"

namespace lockstep {

/// The layout that other programs expect of the folder of a model. It follows from the model and its
/// settings.
struct ModelLayout {
  struct Zeros {
    std::string name;
    Shape shape;
  };
  std::map<std::string, int64_t> rows = {};       ///< [tensor]: rows to keep; later rows are padding
  std::vector<Zeros> zeros = {};                  ///< f32 tensors in the file that the model does not have
  std::map<std::string, std::string> texts = {};  ///< [file]: contents of text files next to the model
  int64_t most_bytes = int64_t{2} << 30;          ///< limit of tensors in one file; a larger model is split
};

}  // namespace lockstep
