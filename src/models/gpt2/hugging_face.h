// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"
#include "lockstep/models/family.h"
#include "lockstep/models/gpt2/gpt.h"

namespace lockstep {

/// Reads a config.json from an untrusted source, as Family::read_config() does. Dropout is not read, because
/// training has its own setting.
ModelDescription read_gpt2_config(const std::string& json, const std::string& origin);

/// Returns the config.json of a GPT2LMHeadModel whose file has tensors of this dtype.
std::string gpt2_config_json(const Gpt::Options& model, const TokenIds& ids, DType dtype = DType::f32);

/// Returns the shapes of the model's tensors by their names in GPT2Model. A GPT2LMHeadModel puts
/// "transformer." in front of these names. lm_head.weight is included unless it is tied.
std::map<std::string, Shape> gpt2_tensors(const Gpt::Options& model);

/// Returns a tensor's name in gpt2_tensors(): the name without "transformer.".
std::string gpt2_stored_name(const std::string& name);

/// Returns whether a tensor is a buffer of the causal mask or the value of masked scores. Older versions of
/// transformers store both next to the weights of each layer. Throws UserError for one of a further layer.
bool is_gpt2_mask(const std::string& name, int64_t layers);

}  // namespace lockstep
