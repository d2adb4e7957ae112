// SPDX-License-Identifier: Apache-2.0
#include "train/language_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "huggingface/load_gpt.h"
#include "huggingface/model_layout.h"
#include "parameters/adamw.h"
#include "snapshot/run_folder.h"
#include "tokenizer/char_tokenizer.h"
#include "train/parameter_rules.h"
#include "writing/write_texts.h"

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

/// Returns the snapshot to resume from if its run began with model.from. For rank 0 only. It compares
/// addresses: the model there may have been deleted or changed since.
std::optional<StoredSnapshot> snapshot_begun_with_source(const Config& config) {
  auto found = snapshot_to_go_on_from(config);
  if (!found || !found->state().artifacts.contains(source_artifact)) return std::nullopt;
  const Config there = config_of_earlier_run(found->state().configuration, found->name());
  return there.model.from == config.model.from ? std::move(found) : std::nullopt;
}

std::unique_ptr<SourceModel> open_source_model(const Config& config, const World& world) {
  const std::string& address = config.model.from;
  const NoTimeout no_timeout(world.communicator());
  std::optional<StoredSnapshot> of_run;
  on_first_rank(world, [&] { of_run = snapshot_begun_with_source(config); });
  if (world.communicator().broadcast_value(of_run.has_value(), 0))
    return std::make_unique<SourceModel>(address, std::move(of_run), world);
  try {
    return std::make_unique<SourceModel>(address, world);
  } catch (const UserError& problem) {
    throw UserError(concat("model.from: ", problem.what()));
  }
}

/// Counts parameters without the padding rows of the tables, which only make matmuls faster.
int64_t count_used_parameters(const Gpt& model) {
  const Gpt::Options& options = model.options();
  const int64_t tables = options.tie_weights ? 1 : 2;
  return count_parameters(model.parameters()) - tables * (options.rows - options.vocabulary) * options.width;
}

}  // namespace

std::unique_ptr<SourceModel> settle_model(Config& config, const World& world) {
  if (config.model.from.empty()) return nullptr;
  std::unique_ptr<SourceModel> source = open_source_model(config, world);
  const Gpt::Options& there = source->config().model;
  const int64_t multiple = config.model.vocab_multiple;
  const std::vector<Setting> sizes = {
      {"model.n_layer", concat(there.layers)},
      {"model.n_head", concat(there.heads)},
      {"model.n_embd", concat(there.width)},
      {"model.vocab_size", concat(there.vocabulary)},
      {"model.vocab_multiple",
       concat(multiple > 0 && !source->is_snapshot() ? multiple : source->vocabulary_multiple())},
      {"model.n_positions", concat(there.block_size)},
      {"model.bias", there.has_bias ? "true" : "false"},
      {"model.tie_weights", there.tie_weights ? "true" : "false"},
      {"model.activation", there.activation == Gelu::erf ? "gelu_erf" : "gelu_tanh"}};
  for (const Setting& size : sizes) {
    const std::string said = value_of(config, size.key);
    const bool is_open = config.unset.contains(size.key) || said == "0";
    require(is_open || said == size.value, size.key, " = ", said,
            ", but the model of model.from = ", config.model.from, " has ", size.value,
            ": leave the key out");
    config.unset.erase(size.key);
  }
  require(config.data.block_size <= there.block_size, "data.block_size = ", config.data.block_size,
          ", but the model of model.from = ", config.model.from, " has ", there.block_size, " positions");
  config = with_settings(std::move(config), sizes);
  return source;
}

/// Returns the tokenizer of a source, or null. Throws UserError if data.tokenizer = auto needs it.
std::shared_ptr<const Tokenizer> tokenizer_of_model(const Config& config, const SourceModel& source) {
  const bool is_needed = config.data.tokenizer == "auto";
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

LanguageData language_data(const Config& config, const World& world, const SourceModel* source) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (source != nullptr && config.data.dataset != "random_tokens")
    on_first_rank(world, [&] { tokenizer = tokenizer_of_model(config, *source); });
  return load_language_data(config, world, tokenizer);
}

std::unique_ptr<Gpt> make_gpt(const Config& config, int64_t vocabulary_size) {
  const int64_t multiple = std::max<int64_t>(1, config.model.vocab_multiple);
  return std::make_unique<Gpt>(
      Gpt::Options{.vocabulary = vocabulary_size,
                   .rows = (vocabulary_size + multiple - 1) / multiple * multiple,
                   .block_size = std::max(config.model.n_positions, config.data.block_size),
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

TrainingTask language_task(const Config& config, const Gpt& model, const LanguageData& data,
                           const SourceModel* source) {
  TrainingTask task;
  task.parameters = model.parameters();
  task.description = concat("data: ", data.description, "\nmodel: ", counted(config.model.n_layer, "layer"),
                            ", ", counted(config.model.n_head, "head"), ", ", config.model.n_embd, " wide, ",
                            counted(count_used_parameters(model), "parameter"));
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
  if (source != nullptr) {
    task.description += concat(", from ", source->address());
    task.artifacts[source_artifact] = source->hash();
    task.initial_values = [source](const World& world, PlacedTensors& tensors) {
      const NoTimeout no_timeout(world.communicator());
      source->load(world, tensors);
    };
  }
  apply_parameter_rules(config.train, task);
  task.layout = [&model, tokenizer = data.tokenizer, cuts = config.model.from.empty()] {
    return gpt2_layout(model.options(), cuts, tokenizer.get());
  };
  if (data.tokenizer) {
    if (const auto* characters = dynamic_cast<const CharTokenizer*>(data.tokenizer.get()))
      task.artifacts[vocabulary_artifact] = characters->vocabulary();
    else
      task.artifacts[tokenizer_artifact] = tokenizer_hash(*data.tokenizer);
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
  const double rows = tables * static_cast<double>(vocabulary_size) +
                      static_cast<double>(std::max(config.model.n_positions, config.data.block_size));
  const auto width = static_cast<double>(config.model.n_embd);
  // Attention has four matrices of width * width. The MLP has two, each four times as large.
  return rows * width + 12 * static_cast<double>(config.model.n_layer) * width * width;
}

}  // namespace lockstep
