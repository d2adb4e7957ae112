// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"
#include "lockstep/replay/recorded_run.h"
#include "lockstep/tokenizer/tokenizer.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// A maker of the task of a run. Each task has a model of its own, and all share the data.
class RunTasks {
 public:
  RunTasks() = default;
  virtual ~RunTasks() = default;
  RunTasks(const RunTasks&) = delete;
  RunTasks& operator=(const RunTasks&) = delete;

  virtual const Job& job() const = 0;
  /// Makes a task. It refers to this object.
  virtual std::shared_ptr<TrainingTask> make() const = 0;
  /// Returns the tokenizer of the samples; null if they are no text.
  virtual const Tokenizer* tokenizer() const { return nullptr; }
  /// Returns the vocabulary that make() gives a language model; 0 for another model.
  virtual int64_t vocabulary_size() const { return 0; }
};

/// Returns the settings with which this process computes a run again: the run's own, on one rank without
/// sharding. `overrides` may set other keys that do not fix the bits, such as the path of the data. Throws
/// UserError for a semantic key.
Settings settings_of_replay(const RecordedRun& run, const SettingLayer& overrides = {});

/// Opens the model and the data of a run of train_gpt or train_mlp. Throws UserError for a run of another
/// program, and if the data are not those of the run.
std::unique_ptr<RunTasks> open_tasks(const RecordedRun& run, const SettingLayer& overrides,
                                     const World& world);

/// Returns tasks that compute micro-batches of a model without its training data. `program`: the name of the
/// program that trained. `vocabulary`: ids of the tokenizer; may be null for a model of no language.
std::unique_ptr<RunTasks> tasks_without_data(const Job& job, const std::string& program,
                                             std::shared_ptr<const Tokenizer> tokenizer,
                                             int64_t vocabulary_size);

}  // namespace lockstep
