// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/run_tasks.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/job/load_job.h"
#include "lockstep/train/language_task.h"
#include "lockstep/train/mlp_task.h"

namespace lockstep {
namespace {

/// The tasks of a language model.
class LanguageTasks final : public RunTasks {
 public:
  LanguageTasks(Job job, std::unique_ptr<SourceModel> source, LanguageData data)
      : job_(std::move(job)), source_(std::move(source)), data_(std::move(data)) {}

  const Job& job() const override { return job_; }
  const Tokenizer* tokenizer() const override { return data_.tokenizer.get(); }
  int64_t vocabulary_size() const override { return data_.vocabulary_size; }
  std::shared_ptr<TrainingTask> make() const override {
    const auto made = std::make_shared<WithModel>(*this);
    return {made, &made->task};
  }

 private:
  /// A task and the model that it refers to.
  struct WithModel {
    explicit WithModel(const LanguageTasks& of)
        : model(make_model(of.job_, of.data_.vocabulary_size)),
          task(of.job_, *model, of.data_, of.source_.get()) {}

    std::unique_ptr<LanguageModel> model;
    LanguageTask task;
  };

  Job job_;
  std::unique_ptr<SourceModel> source_;
  LanguageData data_;
};

/// The tasks of train_mlp.
class MlpTasks final : public RunTasks {
 public:
  explicit MlpTasks(Job job) : job_(std::move(job)) {}
  const Job& job() const override { return job_; }
  std::shared_ptr<TrainingTask> make() const override { return std::make_shared<MlpTask>(job_, 1); }

 private:
  Job job_;
};

std::string name_of(const std::string& program) { return std::filesystem::path(program).filename().string(); }

/// Returns the name of the program that trained. Runs that did not record it were trained by train_gpt.
std::string program_of(const RecordedRun& run) {
  const std::string program = name_of(run.start_of(run.last_step()).program);
  require(program.empty() || program == "train_gpt" || program == "train_mlp", run.folder, " was trained by ",
          program,
          ", which alone knows its model: only runs of train_gpt and train_mlp can be computed again");
  return program;
}

void require_same_data(const RecordedRun& run, const TaskFacts& facts) {
  std::vector<std::string> differing;
  for (const auto& [name, artifact] : facts.artifacts) {
    const auto there = run.data.find(name);
    if (there != run.data.end() && hash_lines({{name, artifact}}) != concat(name, " = ", there->second, "\n"))
      differing.push_back(name);
  }
  require(differing.empty(), "the data are not those of ", run.folder, ": the ", joined(differing),
          " differs; name a copy of them by ",
          differing == std::vector<std::string>{source_artifact} ? "model.from" : "data.dataset", "=PATH");
}

}  // namespace

Settings settings_of_replay(const RecordedRun& run, const SettingLayer& overrides) {
  Settings settings = run.settings;
  SettingLayer alone = {{"dist.shard", "none"},      {"dist.offload", "none"},
                        {"dist.reduction", "tree"},  {"train.recompute", "none"},
                        {"train.threads", "0"},      {"train.memory_gib", "0"},
                        {"snapshot.resume", "auto"}, {"train.tune_matmul", "false"},
                        {"dist.audit_every", "0"},   {"log.trace", "none"}};
  for (const auto& [key, value, origin] : alone) settings.replace(key, value);
  for (const Setting& setting : overrides) {
    const Key& key = job_keys().find(setting.key, setting.origin);
    const bool is_place = setting.key == "train.device" || setting.key == "model.from";
    require(key.key_class != KeyClass::semantic || is_place, setting.key, " fixes the bits of ", run.folder,
            ", so it cannot be set: leave it out");
  }
  settings.add(overrides);
  return settings;
}

std::unique_ptr<RunTasks> open_tasks(const RecordedRun& run, const SettingLayer& overrides,
                                     const World& world) {
  const std::string program = program_of(run);
  const Settings settings = settings_of_replay(run, overrides);
  const Job job = resolve(settings, world);
  std::unique_ptr<RunTasks> tasks;
  if (program == "train_mlp") {
    tasks = std::make_unique<MlpTasks>(job);
  } else {
    std::unique_ptr<SourceModel> source = open_source(job, world);
    const Job sized = with_sizes_of(source.get(), job, settings);
    LanguageData data = language_data(sized, world, source.get());
    tasks = std::make_unique<LanguageTasks>(sized, std::move(source), std::move(data));
  }
  require_same_data(run, tasks->make()->facts());
  return tasks;
}

std::unique_ptr<RunTasks> tasks_without_data(const Job& job, const std::string& program,
                                             std::shared_ptr<const Tokenizer> tokenizer,
                                             int64_t vocabulary_size) {
  if (name_of(program) == "train_mlp") return std::make_unique<MlpTasks>(job);
  require(vocabulary_size > 0, "the bundle has no vocabulary, which a language model needs");
  LanguageData data;
  data.tokenizer = std::move(tokenizer);
  data.vocabulary_size = vocabulary_size;
  return std::make_unique<LanguageTasks>(job, nullptr, std::move(data));
}

}  // namespace lockstep
