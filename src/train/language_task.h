// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "huggingface/source_model.h"
#include "job/job.h"
#include "language/language_data.h"
#include "nn/language_model.h"
#include "train/parameter_rules.h"
#include "train/task.h"

namespace lockstep {

/// Names in Snapshot::artifacts, which the snapshot of a language model stores. See also source_artifact.
inline constexpr const char* vocabulary_artifact = "vocabulary";  ///< the characters of a char tokenizer
inline constexpr const char* tokenizer_artifact = "tokenizer";    ///< tokenizer_hash() of any other tokenizer
inline constexpr const char* corpus_artifact = "corpus";

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
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context& context) const override;
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace& space) const override;
  TaskFacts facts() const override { return facts_; }
  ParameterGroup group(const std::string& name, const Tensor& tensor) const override;
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
