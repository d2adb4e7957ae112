// SPDX-License-Identifier: Apache-2.0
#include "train/language_model.h"

#include "core/text.h"
#include "nn/adamw.h"
#include "snapshot/parameters_hash.h"
#include "snapshot/resume.h"
#include "tensor/ops.h"
#include "train/resolve_corpus.h"

namespace lockstep {
namespace {

constexpr const char* vocabulary_artifact = "vocabulary";
constexpr const char* corpus_artifact = "corpus";

LanguageData random_language_data(const Config& config) {
  require(config.model.vocab_size > 0,
          "model.vocab_size: data.dataset = random_tokens has no text to count it from");
  const RandomTokens::Options options{.samples = int64_t{1} << 24,
                                      .vocabulary_size = config.model.vocab_size,
                                      .block_size = config.data.block_size,
                                      .seed = static_cast<uint64_t>(config.train.seed)};
  RandomTokens::Options validation = options;
  validation.samples = 64;
  ++validation.seed;
  return {.training = std::make_shared<RandomTokens>(options),
          .validation = std::make_shared<RandomTokens>(validation),
          .tokenizer = {},
          .vocabulary_size = config.model.vocab_size,
          .description = concat("random tokens, ", config.model.vocab_size, " symbols"),
          .text_hash = concat("random tokens below ", config.model.vocab_size)};
}

/// Rank 0's corpus on all ranks.
Corpus shared_corpus(const std::string& name, const World& world) {
  Corpus corpus;
  on_first_rank(world, [&] { corpus = resolve_corpus(name); });
  for (std::string* text : {&corpus.text, &corpus.source, &corpus.description})
    *text = world.communicator().broadcast_text(*text, 0);
  return corpus;
}

}  // namespace

LanguageData load_language_data(const Config& config, const World& world) {
  if (config.data.dataset == "random_tokens") return random_language_data(config);
  const Corpus corpus = shared_corpus(config.data.dataset, world);
  require(!corpus.text.empty(), "data.dataset: ", corpus.source, " is empty");
  CharTokenizer tokenizer(corpus.text);
  const TokenSplit split = split_tokens(tokenizer.encode(corpus.text, corpus.source), config.data.block_size,
                                        config.data.train_split, static_cast<uint64_t>(config.train.seed));
  const int64_t needed = tokenizer.vocabulary_size();
  require(config.model.vocab_size == 0 || config.model.vocab_size >= needed,
          "model.vocab_size = ", config.model.vocab_size, ", but the text has ", needed,
          " different characters; 0 takes as many as needed");
  return {.training = split.train,
          .validation = split.validation,
          .tokenizer = tokenizer,
          .vocabulary_size = config.model.vocab_size ? config.model.vocab_size : needed,
          .description = concat(corpus.description, ", ", needed, " symbols"),
          .text_hash = hash_text(hash_of(corpus.text))};
}

std::unique_ptr<Gpt> make_gpt(const Config& config, int64_t vocabulary_size) {
  return std::make_unique<Gpt>(
      Gpt::Options{.vocabulary = vocabulary_size,
                   .block_size = config.data.block_size,
                   .layers = config.model.n_layer,
                   .heads = config.model.n_head,
                   .width = config.model.n_embd,
                   .dropout = config.model.dropout,
                   .has_bias = config.model.bias,
                   .tie_weights = config.model.tie_weights,
                   .activation = config.model.activation == "gelu_erf" ? Gelu::erf : Gelu::tanh},
      static_cast<uint64_t>(config.train.seed));
}

TrainingTask language_task(const Config& config, const Gpt& model, const LanguageData& data) {
  TrainingTask task;
  task.parameters = model.parameters();
  task.description = concat("data: ", data.description, "\nmodel: ", counted(config.model.n_layer, "layer"),
                            ", ", counted(config.model.n_head, "head"), ", ", config.model.n_embd, " wide, ",
                            counted(count_parameters(task.parameters), "parameter"));
  task.loss = [&model, rows = config.train.logit_rows](const Tensor& inputs, const Tensor& targets,
                                                       const Context& context) {
    return model.loss(inputs, targets, context, rows);
  };
  task.group = matrices_decay;
  task.make_optimizer = [train = config.train](ParameterSpace& space) {
    return std::make_unique<AdamW>(
        space,
        AdamW::Options{.beta1 = train.beta1, .beta2 = train.beta2, .weight_decay = train.weight_decay});
  };
  task.training_data = data.training;
  task.validation_data = data.validation;
  task.unit = "tokens";
  task.tokens_per_sample = config.data.block_size;
  task.flops_per_token = model.flops_per_token(config.data.block_size);
  task.artifacts[corpus_artifact] = data.text_hash;
  if (data.tokenizer) {
    task.artifacts[vocabulary_artifact] = data.tokenizer->vocabulary();
    task.user_program = "generate";
    task.sample_text = [&model, &tokenizer = *data.tokenizer,
                        seed = config.train.seed](const std::function<bool()>& go_on) {
      return generate(model, tokenizer, {.tokens = 200, .seed = static_cast<uint64_t>(seed), .go_on = go_on});
    };
  }
  return task;
}

Writer load_writer(const std::string& snapshot_path) {
  const StoredSnapshot stored = find_snapshot(snapshot_path);
  const Snapshot& snapshot = stored.state();
  require(snapshot.artifacts.contains(vocabulary_artifact), snapshot_path,
          " has no vocabulary: it is not the snapshot of a model that was trained on text");
  const Config config = config_of_earlier_run(snapshot.configuration, snapshot_path + "/state.json");
  Writer writer;
  writer.tokenizer = CharTokenizer(snapshot.artifacts.at(vocabulary_artifact));
  const int64_t rows =
      config.model.vocab_size ? config.model.vocab_size : writer.tokenizer->vocabulary_size();
  writer.model = make_gpt(config, rows);
  restore(stored, World::alone(), writer.model->parameters(), nullptr);
  return writer;
}

}  // namespace lockstep
