// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/shape.h"
#include "nn/gpt.h"

namespace lockstep {

/// The names of files in a Hugging Face folder. `model_file` is the name of model.safetensors.
inline constexpr const char* config_file = "config.json";
inline constexpr const char* index_file = "model.safetensors.index.json";

/// The fields of a GPT-2's config.json that this library supports.
struct Gpt2Config {
  Gpt::Options model;                             ///< dropout is not read: training has its own setting
  std::optional<int64_t> beginning_of_text = {};  ///< ids
  std::optional<int64_t> end_of_text = {};
};

/// Reads a config.json from an untrusted source. Throws UserError that names `origin` and the field if the
/// file is damaged or describes a GPT-2 that is not supported.
Gpt2Config parse_gpt2_config(const std::string& json, const std::string& origin);

/// Returns the config.json of a GPT2LMHeadModel whose file has tensors of this dtype.
std::string gpt2_config_json(const Gpt2Config& config, DType dtype = DType::f32);
std::string generation_config_json(const Gpt2Config& config);

/// Returns the shapes of the model's tensors by their names in GPT2Model. A GPT2LMHeadModel puts
/// "transformer." in front of these names. lm_head.weight is included unless it is tied.
std::map<std::string, Shape> gpt2_tensors(const Gpt::Options& model);

/// Returns a tensor's name in gpt2_tensors(): the name without "transformer.".
std::string gpt2_name(const std::string& name);

}  // namespace lockstep
