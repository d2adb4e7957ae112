// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/module.h"

namespace lockstep {

/// A table of vectors, one a row: weight [rows, columns].
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t columns, DType dtype = DType::f32)
      : weight_(add_parameter("weight", {rows, columns}, dtype)) {}

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

}  // namespace lockstep
