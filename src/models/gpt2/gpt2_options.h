// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/gelu_form.h"
#include "lockstep/models/model_options.h"

namespace lockstep {

/// The options that only GPT-2 has. --help gives their meanings.
struct Gpt2Options {
  bool bias = true;
  Gelu activation = Gelu::tanh;
};

inline constexpr const char* gpt2_name = "gpt2";

}  // namespace lockstep
