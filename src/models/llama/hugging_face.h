// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"
#include "lockstep/models/family.h"
#include "lockstep/models/llama/llama.h"

namespace lockstep {

/// Reads a config.json from an untrusted source, as Family::read_config() does. Dropout is not read, because
/// training has its own setting. The file has the form of transformers 4 or 5.
ModelDescription read_llama_config(const std::string& json, const std::string& origin);

/// Returns the config.json of such a model whose file has tensors of this dtype. Transformers 4 and 5 read
/// it.
std::string llama_config_json(const Llama::Options& model, const TokenIds& ids, DType dtype = DType::f32);

/// Returns the shapes of the model's tensors by their names in LlamaModel. A LlamaForCausalLM puts "model."
/// in front of these names. lm_head.weight is included unless it is tied.
std::map<std::string, Shape> llama_tensors(const Llama::Options& model);

/// Returns a tensor's name in llama_tensors(): the name without "model.".
std::string llama_stored_name(const std::string& name);

/// Returns whether a tensor holds the rotary frequencies of a layer, which old files store. Throws UserError
/// for those of a further layer.
bool is_rotary_buffer(const std::string& name, int64_t layers);

}  // namespace lockstep
