// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/replay/replay_step.h"
#include "lockstep/replay/run_tasks.h"

namespace lockstep {

/// A folder with one micro-batch of one step, and with everything that computes it again. That is the whole
/// model and a part of the training data.
///
/// | file | contents |
/// |---|---|
/// | bundle.json | the step, replica and micro-batch; hashes of the loss and the gradients; build and scope |
/// | config.ini | the settings of the run |
/// | model.safetensors, batch.safetensors | values before the step; inputs and targets |
/// | tokenizer.json | if the samples are text |
inline constexpr const char* bundle_file = "bundle.json";

/// Returns whether a folder is a bundle.
bool is_bundle(const std::string& folder);

/// Writes the micro-batch of a step that was traced alone. Throws UserError if the folder has files.
void write_bundle(const std::string& folder, const RecordedRun& run, const RunTasks& tasks,
                  const StepReplay& step);

/// A micro-batch that was computed again from its bundle.
struct BundleReplay {
  std::string origin;  ///< "step 7 of runs/a, replica 2, micro-batch 0"
  std::string build, scope;
  ReplicaTrace replica;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null if the samples are no text
  std::vector<std::string> differences = {};   ///< what has other bits than in the bundle: "the loss", names

  bool is_equal() const { return differences.empty(); }
};

/// Computes a bundle again. Throws UserError that names a missing or damaged file.
BundleReplay replay_bundle(const std::string& folder, const SettingLayer& overrides, const World& world,
                           bool keeps_tensors);

}  // namespace lockstep
