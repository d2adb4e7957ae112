// SPDX-License-Identifier: Apache-2.0
#include "language/language_data.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text.h"
#include "core/thread_pool.h"
#include "data/encode.h"
#include "data/examples.h"
#include "language/token_file.h"
#include "store/download.h"
#include "store/sha256.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

LanguageData random_language_data(const Config& config) {
  require(config.model.vocab_size > 0,
          "model.vocab_size must be set: data.dataset = random_tokens has no text to derive it from");
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

/// Smallest text whose ids are cached in a file. Encoding a smaller text is faster than finding its file.
constexpr size_t least_bytes_of_a_file = size_t{1} << 20;

/// Returns a hash of the text and of the positions where its documents end.
uint64_t hash_of_text(const Corpus& corpus) {
  if (corpus.ends.empty()) return hash_of(corpus.text);
  const std::array pieces = {std::as_bytes(std::span(corpus.text)), std::as_bytes(std::span(corpus.ends))};
  return hash_of(pieces);
}

/// The data that rank 0 reads: a text, or examples.
struct Source {
  Corpus corpus;
  std::vector<Example> examples;

  /// Returns the characters that occur, each at least once. Reads the text in pieces, because code points
  /// take more memory than the text.
  std::string alphabet() const {
    constexpr size_t piece_bytes = size_t{1} << 20;
    std::string found;
    const auto add = [&](std::string_view text) { found += CharTokenizer(text).vocabulary(); };
    for (const Example& example : examples) add(example.prompt + example.answer);
    if (!examples.empty()) return found;
    for (size_t begin = 0, end = 0; begin < corpus.text.size(); begin = end) {
      end = next_character(corpus.text, std::min(corpus.text.size(), begin + piece_bytes));
      add(std::string_view(corpus.text).substr(begin, end - begin));
    }
    return found;
  }
  TokenImage encoded(uint64_t key, const Tokenizer& tokenizer, int threads) const {
    if (examples.empty())
      return {key, encode_corpus(tokenizer, corpus, threads), {}, tokenizer.vocabulary_size()};
    const EncodedExamples encoded = encode_examples(tokenizer, examples, corpus.source, threads);
    return {key, encoded.ids, encoded.marks, tokenizer.vocabulary_size()};
  }
};

Source source_of(const std::string& name) {
  Source source{.corpus = resolve_corpus(name), .examples = {}};
  if (!is_jsonl(name)) return source;
  source.examples = read_examples(source.corpus.text, source.corpus.source);
  source.corpus.description =
      concat(counted(std::ssize(source.examples), "example"), " from ", source.corpus.source);
  return source;
}

/// Returns the tokenizer that data.tokenizer names.
std::shared_ptr<const Tokenizer> tokenizer_for(const Config& config, const Source& source,
                                               const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  const std::string& name = config.data.tokenizer;
  if (name == "auto" && model_tokenizer) return model_tokenizer;
  if (name == "char" || name == "auto") return std::make_shared<CharTokenizer>(source.alphabet());
  try {
    return load_tokenizer(name);
  } catch (const UserError& problem) {
    throw UserError(concat("data.tokenizer = ", name, ": ", problem.what()));
  }
}

/// Rank 0's data as ids, on all ranks.
struct SharedText {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenImage image;
  std::string description;
  std::string text_hash;
};

SharedText share_text(const Config& config, const World& world,
                      const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  SharedText shared;
  Source source;
  std::string json, config_json;
  on_first_rank(world, [&] {
    source = source_of(config.data.dataset);
    const auto tokenizer = tokenizer_for(config, source, model_tokenizer);
    json = tokenizer->to_json();
    config_json = tokenizer->config_json();
    shared.description = source.corpus.description;
    shared.text_hash = hash_text(hash_of_text(source.corpus));
  });
  for (std::string* text : {&json, &config_json, &shared.description, &shared.text_hash})
    *text = world.communicator().broadcast_text(*text, 0);
  shared.tokenizer = tokenizer_from_json(json, "the tokenizer of rank 0", config_json);
  const std::string kind = is_jsonl(config.data.dataset) ? "examples " : "text ";
  const uint64_t key = hash_of(concat(kind, shared.text_hash, " ", tokenizer_hash(*shared.tokenizer)));
  const int threads =
      std::min(available_cores(), static_cast<int>(config.train.threads) * world.local_size());
  const auto encode = [&] { return source.encoded(key, *shared.tokenizer, threads); };
  const bool is_small = world.communicator().on_every_rank(source.corpus.text.size() < least_bytes_of_a_file);
  shared.image = is_small ? broadcast_tokens(world, key, encode) : shared_tokens(world, key, encode);
  return shared;
}

/// Splits a text into windows for training and validation.
void add_windows(const Config& config, const Tokens& tokens, LanguageData& data) {
  const TokenSplit split = split_tokens(tokens, config.data.block_size, config.data.train_split,
                                        static_cast<uint64_t>(config.train.seed));
  data.training = split.train;
  data.validation = split.validation;
}

/// Splits examples into blocks for training and validation. Adds to the description, and logs warnings.
void add_blocks(const Config& config, const World& world, const TokenImage& image, LanguageData& data) {
  const ExampleSplit split = split_examples(image.tokens(), image.marks(), config.data.train_split,
                                            {.block_size = config.data.block_size,
                                             .padding = data.tokenizer->end_of_text().value_or(0),
                                             .packs = config.data.packing,
                                             .counts_prompts = config.data.loss_on == "all"});
  data.training = split.train;
  data.validation = split.validation;
  data.description += concat(
      ", ", counted(split.train->size() + split.validation->size(), "block"), ", loss on ",
      config.data.loss_on == "all" ? "all tokens" : "answers",
      config.data.packing ? "; packed: examples in a block attend to those before them (data.packing)" : "");
  const int64_t cut = split.train->cut_examples() + split.validation->cut_examples();
  const int64_t empty = split.train->empty_examples() + split.validation->empty_examples();
  if (world.is_first() && cut > 0)
    log_warning(concat(counted(cut, "example"), " longer than data.block_size = ", config.data.block_size,
                       cut == 1 ? " is" : " are", " cut into pieces"));
  if (world.is_first() && empty > 0)
    log_warning(concat(counted(empty, "one-token example"), " ", empty == 1 ? "is" : "are",
                       " skipped: there is no context to predict the token from"));
}

constexpr const char* shakespeare_file = "tinyshakespeare.txt";
constexpr const char* shakespeare_url =
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt";
constexpr const char* shakespeare_sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";

/// Saves a download for later runs. Another process sees the whole file or none. A failure is only logged:
/// the next run downloads again.
void keep(const fs::path& path, const std::string& text) {
  try {
    fs::create_directories(path.parent_path());
    write_file(path.string(), text);
  } catch (const std::exception& failure) {
    log_warning(concat("cannot save the download: ", failure.what()));
  }
}

/// A text with a URL, and its name in data.dataset.
struct RemoteText {
  std::string name;
  std::string title;
  std::string url;
  std::string sha256;  ///< empty: any contents
  std::string advice;  ///< for a user who is offline
};

/// Calls a function. Adds advice for a user without this text to its UserError.
template <class Call>
std::string advise(const RemoteText& remote, Call call) {
  try {
    return call();
  } catch (const UserError& failure) {
    throw UserError(concat("data.dataset = ", remote.name, ": ", failure.what(), ". ", remote.advice,
                           ", or train on the built-in text with data.dataset=sample"));
  }
}

std::string fetch(const RemoteText& remote) {
  return advise(remote, [&] { return download(remote.url, remote.sha256); });
}

std::string checksum(const RemoteText& remote, const std::string& text) {
  return advise(remote, [&] { return sha256(text); });
}

Corpus cached_or_fetched(const RemoteText& remote) {
  const fs::path folder = cache_folder();
  const fs::path cached =
      folder / ((remote.sha256.empty() ? checksum(remote, remote.url) : remote.sha256) + ".txt");
  std::error_code unreadable;
  if (!folder.empty() && fs::is_regular_file(cached, unreadable)) {
    std::string text = read_corpus_file(cached.string());
    if (remote.sha256.empty() || checksum(remote, text) == remote.sha256)
      return corpus_of_file(remote.name, remote.title, std::move(text), cached.string());
    log_warning(concat(cached.string(), " is damaged and is downloaded again"));
  }
  Corpus corpus = corpus_of_file(remote.name, remote.title, fetch(remote), remote.url);
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
  return url.starts_with("file://") ? corpus_of_file(url, remote.title, fetch(remote), url)
                                    : cached_or_fetched(remote);
}

}  // namespace

Corpus resolve_corpus(const std::string& name) {
  if (name == "shakespeare") return shakespeare();
  return name.find("://") != std::string::npos ? from_address(name) : local_corpus(name);
}

std::string tokenizer_hash(const Tokenizer& tokenizer) {
  const auto id_of = [](std::optional<int32_t> id) { return id ? std::to_string(*id) : "none"; };
  return hash_text(hash_of(concat(tokenizer.to_json(), " ", id_of(tokenizer.beginning_of_text()), " ",
                                  id_of(tokenizer.end_of_text()))));
}

LanguageData load_language_data(const Config& config, const World& world,
                                const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  if (config.data.dataset == "random_tokens") return random_language_data(config);
  const SharedText text = share_text(config, world, model_tokenizer);
  const bool is_char = dynamic_cast<const CharTokenizer*>(text.tokenizer.get()) != nullptr;
  const int64_t needed = text.tokenizer->vocabulary_size(), tokens = text.image.tokens().size();
  require(config.model.vocab_size == 0 || config.model.vocab_size >= needed,
          "model.vocab_size = ", config.model.vocab_size, ", but the ", is_char ? "text" : "tokenizer",
          " has ", needed, is_char ? " different characters" : " tokens", "; 0 means as many as needed");
  LanguageData data{.training = {},
                    .validation = {},
                    .tokenizer = text.tokenizer,
                    .vocabulary_size = config.model.vocab_size ? config.model.vocab_size : needed,
                    .description = is_char ? concat(text.description, ", ", needed, " symbols")
                                           : concat(text.description, ", ", tokens, " tokens of ", needed),
                    .text_hash = text.text_hash};
  if (is_jsonl(config.data.dataset))
    add_blocks(config, world, text.image, data);
  else
    add_windows(config, text.image.tokens(), data);
  return data;
}

}  // namespace lockstep
