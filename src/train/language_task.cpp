// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/language_task.h"

#include <optional>
#include <utility>

#include "lockstep/config/rows.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/core/text.h"
#include "lockstep/huggingface/model_layout.h"
#include "lockstep/huggingface/source_model.h"
#include "lockstep/job/load_job.h"
#include "lockstep/models/family.h"
#include "lockstep/models/keys.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/train/training_program.h"
#include "lockstep/writing/write_texts.h"

namespace lockstep {
namespace {

/// Returns the snapshot to resume from if its run began with model.from. For rank 0 only. It compares
/// addresses: the model there may have been deleted or changed since.
std::optional<StoredSnapshot> snapshot_begun_with_source(const Job& job) {
  auto found = snapshot_to_resume(request_of(job));
  if (!found || !found->state().artifacts.contains(source_artifact)) return std::nullopt;
  const ModelOptions there = model_rows().in_ini(found->state().configuration, found->name());
  return there.from == job.model.from ? std::move(found) : std::nullopt;
}

/// Returns the tokenizer of a source, or null. Throws UserError if data.tokenizer = auto needs it.
std::shared_ptr<const Tokenizer> tokenizer_of_model(const Job& job, const SourceModel& source) {
  const auto* named = std::get_if<NamedTokenizer>(&job.text.tokenizer);
  const bool is_needed = named != nullptr && *named == NamedTokenizer::of_model;
  try {
    const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(source);
    // A resumed run has no tokenizer if its data are not text.
    require(tokenizer || !is_needed || source.is_of_run(), "model.from = ", source.address(),
            " has no tokenizer for data.tokenizer = auto; name one in data.tokenizer");
    return tokenizer;
  } catch (const UserError& problem) {
    if (is_needed) throw;
    log_warning(concat("data.tokenizer is not compared with the model's: ", problem.what()));
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<SourceModel> open_source(const Job& job, const World& world) {
  const std::string& address = job.model.from;
  if (address.empty()) return nullptr;
  const NoTimeout no_timeout(world.communicator());
  std::optional<StoredSnapshot> of_run;
  on_first_rank(world, [&] { of_run = snapshot_begun_with_source(job); });
  if (world.communicator().broadcast_value(of_run.has_value(), 0))
    return std::make_unique<SourceModel>(address, std::move(of_run), world);
  try {
    return std::make_unique<SourceModel>(address, world);
  } catch (const UserError& problem) {
    throw UserError(concat("model.from: ", problem.what()));
  }
}

Job with_sizes_of(const SourceModel* source, const Job& job, const Settings& given) {
  if (source == nullptr) return job;
  Job with = job;
  with.model = source->description().options;
  with.model.from = job.model.from;
  with.model.preset = job.model.preset;
  with.model.dropout = job.model.dropout;
  if (job.model.vocab_multiple > 0 && !source->is_snapshot())
    with.model.vocab_multiple = job.model.vocab_multiple;
  const Settings here = job_keys().settings_of(job), there = job_keys().settings_of(with);
  for (const Key& key : job_keys().keys()) {
    const std::string &said = here[key.name], &is = there[key.name];
    const bool is_open = !given.is_set(key.name) || said == "0";
    require(is_open || said == is, key.name, " = ", said, ", but the model of model.from = ", job.model.from,
            " has ", is, ": leave the key out");
  }
  require(job.text.block_size <= with.model.n_positions, "data.block_size = ", job.text.block_size,
          ", but the model of model.from = ", job.model.from, " has ", with.model.n_positions, " positions");
  check_together(with, there);
  with.compute.device = chosen_device(with);
  return with;
}

LanguageData language_data(const Job& job, const World& world, const SourceModel* source) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (source != nullptr && !is_named(job.text, NamedText::random_tokens))
    on_first_rank(world, [&] { tokenizer = tokenizer_of_model(job, *source); });
  const TextReader reader{.model = job.model.from,
                          .vocab_size = job.model.vocab_size,
                          .seed = job.seed(),
                          .threads = job.threads()};
  return load_language_data(job.text, reader, world, tokenizer);
}

std::unique_ptr<LanguageModel> make_model(const Job& job, int64_t vocabulary_size) {
  const ModelOptions options = sized(job.model, vocabulary_size, job.text.block_size);
  return family_of(options).make(options, job.compute.recompute, job.seed());
}

LanguageTask::LanguageTask(const Job& job, const LanguageModel& model, const LanguageData& data,
                           const SourceModel* source)
    : job_(job),
      model_(model),
      data_(data),
      source_(source),
      rules_(job.optimizer, model.parameters()),
      facts_(make_facts()) {}

std::unique_ptr<Optimizer> LanguageTask::make_optimizer(ParameterSpace& space) const {
  return make_adamw(space, job_.optimizer);
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
  if (!data_.validation_hash.empty()) facts.artifacts[validation_artifact] = data_.validation_hash;
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
