// SPDX-License-Identifier: Apache-2.0
#include "train/language_model.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "nn/adamw.h"
#include "snapshot/parameters_hash.h"
#include "snapshot/snapshot.h"
#include "store/download.h"
#include "store/sha256.h"
#include "tensor/ops.h"

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

namespace fs = std::filesystem;

constexpr const char* shakespeare_file = "tinyshakespeare.txt";
constexpr const char* shakespeare_url =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";
constexpr const char* shakespeare_sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

/// Keeps a download for the next run. Whoever looks meanwhile sees the whole file or none; failing costs only
/// the next run's time.
void keep(const fs::path& path, const std::string& text) {
  try {
    fs::create_directories(path.parent_path());
    write_file(path.string(), text);
  } catch (const std::exception& failure) {
    log_warning(concat("cannot keep the download: ", failure.what()));
  }
}

/// A text that has an address, and what data.dataset calls it.
struct RemoteText {
  std::string name;
  std::string title;
  std::string url;
  std::string sha256;  ///< empty: any contents
  std::string advice;  ///< for a user who is offline
};

std::string fetch(const RemoteText& remote) {
  try {
    return download(remote.url, remote.sha256);
  } catch (const UserError& failure) {
    throw UserError(concat("data.dataset = ", remote.name, ": ", failure.what(), ". ", remote.advice,
                           ", or train on the built-in text with data.dataset=sample"));
  }
}

Corpus cached_or_fetched(const RemoteText& remote) {
  const fs::path folder = cache_folder();
  const fs::path cached = folder / ((remote.sha256.empty() ? sha256(remote.url) : remote.sha256) + ".txt");
  std::error_code unreadable;
  if (!folder.empty() && fs::is_regular_file(cached, unreadable)) {
    std::string text = read_corpus_file(cached.string());
    if (remote.sha256.empty() || sha256(text) == remote.sha256)
      return make_corpus(remote.title, std::move(text), cached.string());
    log_warning(concat(cached.string(), " is damaged and is downloaded again"));
  }
  Corpus corpus = make_corpus(remote.title, fetch(remote), remote.url);
  if (!folder.empty()) keep(cached, corpus.text);
  return corpus;
}

Corpus shakespeare() {
  const std::string path = find_in_data_folder(shakespeare_file);
  if (!path.empty()) return make_corpus("Shakespeare", read_corpus_file(path), path);
  return cached_or_fetched({.name = "shakespeare",
                            .title = "Shakespeare",
                            .url = shakespeare_url,
                            .sha256 = shakespeare_sha256,
                            .advice = concat("Set LOCKSTEP_DATA_DIR to a folder with ", shakespeare_file)});
}

Corpus from_address(const std::string& url) {
  const RemoteText remote{.name = url,
                          .title = "Text",
                          .url = url,
                          .sha256 = "",
                          .advice = "Download it elsewhere and give its path"};
  return url.starts_with("file://") ? make_corpus(remote.title, fetch(remote), url)
                                    : cached_or_fetched(remote);
}

Recompute recompute_of(const Config& config) {
  using What = Recompute::What;
  const std::map<std::string, What> names{
      {"none", What::none}, {"attention", What::attention}, {"block", What::block}};
  const auto found = names.find(config.train.recompute);
  return found != names.end() ? Recompute{found->second}
                              : Recompute{What::segments, recompute_segments(config)};
}

/// What a text begins with if nobody says: the end of a line before it.
std::vector<int32_t> first_id(const CharTokenizer& tokenizer) {
  const bool has_lines = tokenizer.vocabulary().find('\n') != std::string::npos;
  return has_lines ? tokenizer.encode("\n") : std::vector<int32_t>{0};
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
  const ParameterSpace space(writer.model->parameters());
  SpaceTensors tensors(space, nullptr, 1);
  restore(stored, World::alone(), tensors);
  return writer;
}

Corpus resolve_corpus(const std::string& name) {
  if (name == "shakespeare") return shakespeare();
  return name.find("://") != std::string::npos ? from_address(name) : local_corpus(name);
}

std::string write_text(const Gpt& model, const CharTokenizer& tokenizer, const std::string& prompt,
                       GenerateOptions options) {
  options.symbols = tokenizer.vocabulary_size();
  return tokenizer.decode(
      generate(model, prompt.empty() ? first_id(tokenizer) : tokenizer.encode(prompt, "--prompt"), options));
}

}  // namespace lockstep
