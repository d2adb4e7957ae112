// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "lockstep/huggingface/source_model.h"
#include "lockstep/job/job.h"
#include "lockstep/job/keys.h"
#include "lockstep/language/language_data.h"
#include "lockstep/nn/language_model.h"
#include "lockstep/parameters/parameter_rules.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Opens the model of model.from; null if the key is not set. If a run that began with this model resumes,
/// that run's snapshot describes it. All ranks call it. Throws UserError naming the damaged file.
std::unique_ptr<SourceModel> open_source(const Job& job, const World& world);

/// Returns the job with the sizes of `source`, unless that is null. `given`: what the user has set. Throws
/// UserError naming the key that contradicts the model.
Job with_sizes_of(const SourceModel* source, const Job& job, const Settings& given);

/// Makes the model of a job, with a vocabulary of this size.
std::unique_ptr<LanguageModel> make_model(const Job& job, int64_t vocabulary_size);

/// Calls load_language_data(). With data.tokenizer = auto it uses the tokenizer of `source`, unless that is
/// null. Throws UserError if the source has no tokenizer.
LanguageData language_data(const Job& job, const World& world, const SourceModel* source);

/// Names in Snapshot::artifacts, which the snapshot of a language model stores. See also source_artifact.
inline constexpr const char* vocabulary_artifact = "vocabulary";  ///< the characters of a char tokenizer
inline constexpr const char* tokenizer_artifact = "tokenizer";    ///< tokenizer_hash() of any other tokenizer
inline constexpr const char* corpus_artifact = "corpus";
inline constexpr const char* validation_artifact = "data.validation";  ///< the text of that key, if it is set

/// The training of a language model on a text or on examples.
class LanguageTask final : public TrainingTask {
 public:
  /// The training begins with the values of `source` if it is not null. Keeps references to its arguments.
  /// Throws UserError for train.freeze or train.groups that do not fit the model.
  LanguageTask(const Job& job, const LanguageModel& model, const LanguageData& data,
               const SourceModel* source = nullptr);

  std::vector<NamedTensor> parameters() const override { return model_.parameters(); }
  std::shared_ptr<const Dataset> training_data() const override { return data_.training; }
  std::shared_ptr<const Dataset> validation_data() const override { return data_.validation; }
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context& context) const override {
    return model_.loss(inputs, targets, context, job_.compute.logit_rows);
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override;
  TaskFacts facts() const override { return facts_; }
  ParameterGroup group(const std::string& name, const Tensor& tensor) const override {
    return rules_.group(name, matrices_decay(name, tensor));
  }
  bool load_initial_values(const World& world, PlacedTensors& tensors) const override;
  ModelLayout layout() const override;
  std::string sample_text(const std::function<bool()>& go_on) const override;

 private:
  TaskFacts make_facts() const;

  const Job& job_;
  const LanguageModel& model_;
  const LanguageData& data_;
  const SourceModel* source_;
  ParameterRules rules_;
  TaskFacts facts_;  ///< hashing a tokenizer takes time
};

}  // namespace lockstep
