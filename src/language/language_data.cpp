// SPDX-License-Identifier: Apache-2.0
#include "language/language_data.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text.h"
#include "core/thread_pool.h"
#include "data/encode.h"
#include "data/examples.h"
#include "data/read_corpus.h"
#include "language/known_facts.h"
#include "language/resolve_corpus.h"
#include "language/token_file.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/write_tokenizer_json.h"

namespace lockstep {
namespace {

LanguageData random_language_data(const TextOptions& text, const TextReader& reader) {
  require(reader.vocab_size > 0,
          "model.vocab_size must be set: data.dataset = random_tokens has no text to derive it from");
  const RandomTokens::Options options{.samples = int64_t{1} << 24,
                                      .vocabulary_size = reader.vocab_size,
                                      .block_size = text.block_size,
                                      .seed = reader.seed};
  RandomTokens::Options validation = options;
  validation.samples = 64;
  ++validation.seed;
  return {.training = std::make_shared<RandomTokens>(options),
          .validation = std::make_shared<RandomTokens>(validation),
          .tokenizer = {},
          .vocabulary_size = reader.vocab_size,
          .description = concat("random tokens, ", reader.vocab_size, " symbols"),
          .text_hash = concat("random tokens below ", reader.vocab_size)};
}

/// Throws UserError unless every id of a tokenizer has the same text in the tokenizer of the model. Warns if
/// the model has learned texts that were divided in another way.
void require_ids_of_model(const Tokenizer& tokenizer, const Tokenizer& of_model, const std::string& name,
                          const std::string& model) {
  const auto text_of = [](const Tokenizer& from, int32_t id) { return from.decode({&id, 1}); };
  const int64_t shared = std::min(tokenizer.vocabulary_size(), of_model.vocabulary_size());
  for (int32_t id = 0; id < shared; ++id)
    require(text_of(tokenizer, id) == text_of(of_model, id), "data.tokenizer = ", name,
            " is not the tokenizer of model.from = ", model, ": the id ", id,
            " is another token; leave data.tokenizer = auto");
  if (!tokenizer.has_rules_of(of_model))
    log_warning(concat("data.tokenizer = ", name, " has the tokens of model.from = ", model,
                       ", but other merges, patterns, added tokens or ends of texts, so ",
                       "the model has learned other ids for a text; data.tokenizer = auto has the model's"));
}

/// Returns the tokenizer that data.tokenizer names. Throws UserError if it is not that of the model.
std::shared_ptr<const Tokenizer> tokenizer_for(const TextOptions& text, const TextReader& reader,
                                               const std::string& alphabet,
                                               const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  const auto* named = std::get_if<NamedTokenizer>(&text.tokenizer);
  if (named != nullptr && *named == NamedTokenizer::of_model && model_tokenizer) return model_tokenizer;
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = named != nullptr ? std::make_shared<CharTokenizer>(alphabet)
                                 : load_tokenizer(std::get<std::string>(text.tokenizer));
  } catch (const UserError& problem) {
    throw UserError(concat("data.tokenizer = ", tokenizer_name(text), ": ", problem.what()));
  }
  if (model_tokenizer) require_ids_of_model(*tokenizer, *model_tokenizer, tokenizer_name(text), reader.model);
  return tokenizer;
}

/// Encodes a corpus. If that fails, perhaps because it has changed, the next start reads all of it again.
void encode_as_measured(const Tokenizer& tokenizer, const Corpus& corpus, const CorpusFacts& facts,
                        ThreadPool& pool, const TakeIds& take) {
  try {
    require(encode_corpus(tokenizer, corpus, pool, take) == facts.hash, "data.dataset: ", corpus.source,
            " has changed since it was read; start again");
  } catch (const Error&) {
    forget_facts(corpus);
    throw;
  }
}

/// Returns rank 0's text as ids on all ranks, and fills the tokenizer, description and hash of `data`.
TokenImage share_text(const TextOptions& text, const TextReader& reader, const World& world,
                      const std::shared_ptr<const Tokenizer>& model_tokenizer, LanguageData& data) {
  Corpus corpus;
  CorpusFacts facts;
  std::string json, config_json;
  on_first_rank(world, [&] {
    corpus = resolve_corpus(text.dataset);
    facts = facts_of(corpus);
    const auto tokenizer = tokenizer_for(text, reader, facts.alphabet, model_tokenizer);
    json = tokenizer->to_json();
    config_json = tokenizer_config_json(*tokenizer);
    data.description = describe(corpus, facts);
    data.text_hash = hash_text(facts.hash);
  });
  for (std::string* shared : {&json, &config_json, &data.description, &data.text_hash})
    *shared = world.communicator().broadcast_text(*shared, 0);
  const bool has_examples = world.communicator().broadcast_value(corpus.kind == Corpus::Kind::examples, 0);
  data.tokenizer = tokenizer_from_json(json, "the tokenizer of rank 0", config_json);
  const TokenLayout layout{.key = hash_of(concat(has_examples ? "examples " : "text ", data.text_hash, " ",
                                                 tokenizer_hash(*data.tokenizer))),
                           .vocabulary_size = data.tokenizer->vocabulary_size(),
                           .examples = has_examples ? facts.count : 0};
  const int threads = std::min(available_cores(), reader.threads * world.local_size());
  const auto encode = [&](const TakeIds& take) {
    ThreadPool pool(std::max(threads, 1));
    encode_as_measured(*data.tokenizer, corpus, facts, pool, take);
  };
  const bool is_small = world.communicator().on_every_rank(facts.bytes < least_cached_bytes);
  return is_small ? broadcast_tokens(world, layout, encode) : shared_tokens(world, layout, encode);
}

/// Splits examples into blocks for training and validation. Adds to the description, and logs warnings.
void add_blocks(const TextOptions& text, const World& world, const TokenImage& image, LanguageData& data) {
  const auto split = split_examples(image.tokens(), image.marks(), text.train_split,
                                    {.block_size = text.block_size,
                                     .padding = data.tokenizer->end_of_text().value_or(0),
                                     .packs = text.packing,
                                     .counts_prompts = text.loss_on == LossOn::all});
  data.training = split.train;
  data.validation = split.validation;
  // Without validation there is no second part.
  const auto sum = [&](int64_t (ExampleBlocks::*count)() const) {
    return (*split.train.*count)() + (split.validation ? (*split.validation.*count)() : 0);
  };
  data.description +=
      concat(", ", counted(sum(&ExampleBlocks::size), "block"), ", loss on ",
             text.loss_on == LossOn::all ? "all tokens" : "answers",
             text.packing ? "; packed: examples in a block attend to those before them (data.packing)" : "");
  const int64_t cut = sum(&ExampleBlocks::cut_examples);
  const int64_t empty = sum(&ExampleBlocks::empty_examples);
  if (world.is_first() && cut > 0)
    log_warning(concat(counted(cut, "example"), " longer than data.block_size = ", text.block_size,
                       cut == 1 ? " is" : " are", " cut into pieces"));
  if (world.is_first() && empty > 0)
    log_warning(concat(counted(empty, "one-token example"), " ", empty == 1 ? "is" : "are",
                       " skipped: there is no context to predict the token from"));
}

/// Throws UserError if a tokenizer has an id that the model of this size lacks.
void require_enough_ids(const TextOptions& text, const TextReader& reader, const Tokenizer& tokenizer,
                        bool is_char) {
  const int64_t most = reader.vocab_size, needed = tokenizer.vocabulary_size();
  if (most == 0 || most >= needed) return;
  const char* const unit = is_char ? "character" : "token";
  const auto lacking = static_cast<int32_t>(most);
  require(reader.model.empty(), "data.tokenizer = ", tokenizer_name(text), " has the ", unit, " \"",
          shortened(tokenizer.decode({&lacking, 1})), "\", but the model of model.from = ", reader.model,
          " has only the ids below ", most);
  throw UserError(concat("model.vocab_size = ", most, ", but the ", is_char ? "text" : "tokenizer", " has ",
                         needed, is_char ? " different characters" : " tokens",
                         "; 0 means as many as needed"));
}

}  // namespace

std::string tokenizer_hash(const Tokenizer& tokenizer) {
  const auto id_of = [](std::optional<int32_t> id) { return id ? std::to_string(*id) : "none"; };
  return hash_text(hash_of(concat(tokenizer.to_json(), " ", id_of(tokenizer.beginning_of_text()), " ",
                                  id_of(tokenizer.end_of_text()))));
}

std::string tokenizer_name(const TextOptions& text) {
  if (const auto* name = std::get_if<std::string>(&text.tokenizer)) return *name;
  return std::get<NamedTokenizer>(text.tokenizer) == NamedTokenizer::of_model ? "auto" : "char";
}

LanguageData load_language_data(const TextOptions& text, const TextReader& reader, const World& world,
                                const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  if (is_named(text, NamedText::random_tokens)) return random_language_data(text, reader);
  LanguageData data;
  const TokenImage image = share_text(text, reader, world, model_tokenizer, data);
  const bool is_char = dynamic_cast<const CharTokenizer*>(data.tokenizer.get()) != nullptr;
  const int64_t needed = data.tokenizer->vocabulary_size();
  require_enough_ids(text, reader, *data.tokenizer, is_char);
  data.vocabulary_size = reader.vocab_size ? reader.vocab_size : needed;
  data.description +=
      is_char ? concat(", ", needed, " symbols") : concat(", ", image.tokens().size(), " tokens of ", needed);
  if (image.bytes().are_in_memory()) data.id_bytes = image.bytes().size();
  if (image.marks().examples() > 0) {
    add_blocks(text, world, image, data);
    return data;
  }
  const auto split = split_tokens(image.tokens(), text.block_size, text.train_split, reader.seed);
  data.training = split.train;
  data.validation = split.validation;
  return data;
}

}  // namespace lockstep
