// SPDX-License-Identifier: Apache-2.0
#include "train/language_task.h"

#include "core/text.h"
#include "huggingface/model_layout.h"
#include "parameters/adamw.h"
#include "tokenizer/char_tokenizer.h"
#include "writing/write_texts.h"

namespace lockstep {

LanguageTask::LanguageTask(const Job& job, const LanguageModel& model, const LanguageData& data,
                           const SourceModel* source)
    : job_(job),
      model_(model),
      data_(data),
      source_(source),
      rules_(job.optimizer, model.parameters()),
      facts_(make_facts()) {}

Tensor LanguageTask::loss(const Tensor& inputs, const Tensor& targets, const Context& context) const {
  return model_.loss(inputs, targets, context, job_.compute.logit_rows);
}

std::unique_ptr<Optimizer> LanguageTask::make_optimizer(ParameterSpace& space) const {
  const OptimizerOptions& options = job_.optimizer;
  return std::make_unique<AdamW>(
      space,
      AdamW::Options{.beta1 = options.beta1, .beta2 = options.beta2, .weight_decay = options.weight_decay});
}

TaskFacts LanguageTask::make_facts() const {
  const ModelOptions& model = job_.model;
  const int64_t block_size = job_.text.block_size;
  TaskFacts facts{
      .description = concat("data: ", data_.description, "\nmodel: ", counted(model.n_layer, "layer"), ", ",
                            counted(model.n_head, "head"), ", ", model.n_embd, " wide, ",
                            counted(model_.used_parameters(), "parameter")),
      .unit = "tokens",
      .tokens_per_sample = block_size,
      .flops_per_token = model_.flops_per_token(block_size),
      .artifacts = {{corpus_artifact, data_.text_hash}}};
  if (source_ != nullptr) {
    facts.description += concat(", from ", source_->address());
    facts.artifacts[source_artifact] = source_->hash();
  }
  facts.description += rules_.description();
  if (!data_.tokenizer) return facts;
  if (const auto* characters = dynamic_cast<const CharTokenizer*>(data_.tokenizer.get()))
    facts.artifacts[vocabulary_artifact] = characters->vocabulary();
  else
    facts.artifacts[tokenizer_artifact] = tokenizer_hash(*data_.tokenizer);
  facts.writes_samples = true;
  facts.user_program = "generate";
  return facts;
}

ParameterGroup LanguageTask::group(const std::string& name, const Tensor& tensor) const {
  return rules_.group(name, matrices_decay(name, tensor));
}

bool LanguageTask::load_initial_values(const World& world, PlacedTensors& tensors) const {
  if (source_ == nullptr) return false;
  const NoTimeout no_timeout(world.communicator());
  source_->load(world, tensors);
  return true;
}

ModelLayout LanguageTask::layout() const {
  return layout_of(model_, job_.model.from.empty(), data_.tokenizer.get());
}

std::string LanguageTask::sample_text(const std::function<bool()>& go_on) const {
  return write_text(model_, *data_.tokenizer, "", {.tokens = 200, .seed = job_.seed(), .go_on = go_on});
}

}  // namespace lockstep
