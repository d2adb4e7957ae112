// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {

/// Returns the configuration of a program called train_gpt with these arguments.
inline Config load(std::vector<const char*> words, const Config& defaults = {}) {
  words.insert(words.begin(), "/somewhere/bin/train_gpt");
  return load_config(split_arguments(static_cast<int>(words.size()), words.data()), defaults);
}

/// Returns the configuration of a program whose configuration file a.ini has this text.
inline Config load_file(const std::string& text) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a.ini";
  write_text(path, text);
  return load({"--config", path.c_str()});
}

}  // namespace lockstep
