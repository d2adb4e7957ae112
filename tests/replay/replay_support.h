// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "support/program.h"
#include "support/temporary_directory.h"

namespace lockstep {

/// The settings of a tiny GPT on the built-in text, which trains in a moment.
inline const std::string tiny_gpt =
    "data.dataset=sample data.block_size=8 model.n_layer=1 model.n_head=2 model.n_embd=16 model.dropout=0.1 "
    "train.steps=12 train.batch_size=4 train.accumulate=2 train.warmup_steps=2 train.grad_clip=0.5 "
    "train.eval_every=6 dist.replicas=3 snapshot.every_steps=4 snapshot.keep=9 train.threads=1 ";

/// Trains with further settings. `environment` comes before the command, and `train` is the program.
inline void train_tiny(const std::string& folder, const std::string& settings = "",
                       const std::string& environment = "", const std::string& train = program("train_gpt")) {
  const Outcome outcome =
      run_command(environment + " " + train + " " + tiny_gpt + settings + " log.dir=" + folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
}

/// Runs a program of this build.
inline Outcome run_program_named(const std::string& name, const std::string& arguments) {
  return run_command(program(name) + " " + arguments);
}

/// Replaces the first occurrence of a text in a file.
inline void replace_in_file(const std::string& path, const std::string& old_text,
                            const std::string& new_text) {
  std::string text = read_text(path);
  const size_t at = text.find(old_text);
  ASSERT_NE(at, std::string::npos) << old_text << " is not in " << path;
  write_text(path, text.replace(at, old_text.size(), new_text));
}

}  // namespace lockstep
