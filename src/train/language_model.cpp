// SPDX-License-Identifier: Apache-2.0
#include "train/language_model.h"

#include <map>

#include "core/error.h"
#include "core/text.h"
#include "nn/adamw.h"
#include "tokenizer/char_tokenizer.h"
#include "train/parameter_rules.h"
#include "train/writer.h"

namespace lockstep {
namespace {

Recompute recompute_of(const Config& config) {
  using What = Recompute::What;
  const std::map<std::string, What> names{
      {"none", What::none}, {"attention", What::attention}, {"block", What::block}};
  const auto found = names.find(config.train.recompute);
  return found != names.end() ? Recompute{found->second}
                              : Recompute{What::segments, recompute_segments(config)};
}

}  // namespace

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
                   .activation = config.model.activation == "gelu_erf" ? Gelu::erf : Gelu::tanh,
                   .recompute = recompute_of(config)},
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
  apply_parameter_rules(config.train, task);
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
    if (const auto* characters = dynamic_cast<const CharTokenizer*>(data.tokenizer.get()))
      task.artifacts[vocabulary_artifact] = characters->vocabulary();
    else
      task.artifacts[tokenizer_artifact] = data.tokenizer->to_json();
    task.user_program = "generate";
    task.sample_text = [&model, &tokenizer = *data.tokenizer,
                        seed = config.train.seed](const std::function<bool()>& go_on) {
      return write_text(model, tokenizer, "",
                        {.tokens = 200, .seed = static_cast<uint64_t>(seed), .go_on = go_on});
    };
  }
  return task;
}

double count_matrix_elements(const Config& config, int64_t vocabulary_size) {
  const double tables = config.model.tie_weights ? 1 : 2;
  const double rows =
      tables * static_cast<double>(vocabulary_size) + static_cast<double>(config.data.block_size);
  const auto width = static_cast<double>(config.model.n_embd);
  // Attention has four matrices of width * width, the MLP two of four times that.
  return rows * width + 12 * static_cast<double>(config.model.n_layer) * width * width;
}

}  // namespace lockstep
