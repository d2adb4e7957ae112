// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/shape.h"
#include "kernels/gelu.h"

namespace lockstep {

/// What the files of a Hugging Face folder are called, besides model.safetensors.
inline constexpr const char* config_file = "config.json";
inline constexpr const char* index_file = "model.safetensors.index.json";

/// What the config.json of a GPT-2 says, as far as it is computed here.
struct Gpt2Config {
  int64_t vocabulary = 0;
  int64_t positions = 0;  ///< the longest context
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  Gelu activation = Gelu::tanh;
  bool is_tied = true;                            ///< the head is the table of tokens
  double dropout = 0.0;                           ///< written, not read: training has a setting of its own
  std::optional<int64_t> beginning_of_text = {};  ///< ids
  std::optional<int64_t> end_of_text = {};
};

/// Reads a config.json, made by anybody. Throws UserError that names `origin` and the field for what is
/// damaged, and for what a GPT-2 can be and is not computed here.
Gpt2Config parse_gpt2_config(const std::string& json, const std::string& origin);

/// The config.json of a GPT2LMHeadModel whose file has tensors of this dtype.
std::string gpt2_config_json(const Gpt2Config& config, DType dtype = DType::f32);
std::string generation_config_json(const Gpt2Config& config);

/// The tensors of such a model with their shapes, under the names that GPT2Model gives them, which in a
/// GPT2LMHeadModel have "transformer." in front; also lm_head.weight, unless it is tied.
std::map<std::string, Shape> gpt2_tensors(const Gpt2Config& config);

/// A tensor's name in gpt2_tensors(): without "transformer.".
std::string gpt2_name(const std::string& name);

}  // namespace lockstep
