// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/job/load_job.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {

/// Returns the settings of a program called train_gpt with these arguments.
inline Settings load_words(std::vector<const char*> words, const SettingLayer& defaults = {}) {
  words.insert(words.begin(), "/somewhere/bin/train_gpt");
  return load_settings(split_arguments(static_cast<int>(words.size()), words.data()), defaults);
}

/// Returns the job of a program called train_gpt with these arguments.
inline Job load(const std::vector<const char*>& words, const SettingLayer& defaults = {}) {
  return job_of(load_words(words, defaults));
}

/// Returns the job of the INI text of an earlier run.
inline Job earlier(const std::string& text, const std::string& name) {
  return job_keys().job_of(settings_of_earlier_run(job_keys(), text, name));
}

/// Returns the job of a program whose configuration file a.ini has this text.
inline Job load_file(const std::string& text) {
  const TemporaryDirectory directory;
  const std::string path = directory / "a.ini";
  write_text(path, text);
  return load({"--config", path.c_str()});
}

}  // namespace lockstep
