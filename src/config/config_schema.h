// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/config_key.h"

namespace lockstep {

/// A name for the size of a GPT.
struct ModelPreset {
  std::string name;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_embd = 0;
};

/// GPT (Radford et al. 2018), GPT-2 (Radford et al. 2019), the smallest Gopher (Rae et al. 2021), and
/// minGPT's three small ones.
const std::vector<ModelPreset>& model_presets();

/// Every key, by section.
const std::vector<ConfigKey>& config_schema();

/// The key of that name. Throws UserError with a suggestion, naming `origin`.
const ConfigKey& find_config_key(const std::string& name, const std::string& origin);

/// " (did you mean ...?)" for a name that resembles a key, else a pointer to --help.
std::string suggest_config_key(const std::string& name);

}  // namespace lockstep
