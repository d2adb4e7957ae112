// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/shared_text.h"

#include <algorithm>
#include <optional>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/log.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/core/thread_pool.h"
#include "lockstep/data/chat_template.h"
#include "lockstep/data/read_corpus.h"
#include "lockstep/language/keys.h"
#include "lockstep/language/known_facts.h"
#include "lockstep/language/resolve_corpus.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"

namespace lockstep {
namespace {

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

/// Returns the tokenizer in words.
std::string name_of_tokenizer(const TextOptions& text, const TextReader& reader) {
  const auto* named = std::get_if<NamedTokenizer>(&text.tokenizer);
  const bool is_of_model = named != nullptr && *named == NamedTokenizer::of_model && !reader.model.empty();
  return is_of_model ? concat("the tokenizer of ", reader.model)
                     : concat(option_name("tokenizer"), " = ", tokenizer_name(text));
}

/// Returns the template of the conversations of a corpus. Throws UserError if it is not known, or if the
/// tokenizer lacks its tokens.
ChatTemplate chat_template_for(const TextOptions& text, const TextReader& reader, const Corpus& corpus,
                               const Tokenizer& tokenizer) {
  const std::string jinja = tokenizer.chat_template(),
                    what = concat(option_name("dataset"), ": ", corpus.source, " has conversations, ");
  const std::string tokenizer_in_words = name_of_tokenizer(text, reader),
                    advice = concat("; set ", option_name("chat_template"),
                                    " = llama3 or chatml, or write the conversations as \"text\"");
  std::optional<ChatTemplate> chat = chat_template_of(jinja);
  if (text.chat_template == ChatFormat::of_tokenizer) {
    require(!jinja.empty(), what, "but ", tokenizer_in_words, " has no chat template", advice);
    require(chat.has_value(), what, "and the chat template of ", tokenizer_in_words,
            " is none of those that are known (Llama 3, Qwen 2 and 3, SmolLM2)", advice);
  } else {
    const bool is_llama = text.chat_template == ChatFormat::llama3;
    chat = ChatTemplate{.form = is_llama ? ChatTemplate::Form::llama3 : ChatTemplate::Form::chatml};
  }
  try {
    require_tokens_of(*chat, tokenizer);
  } catch (const UserError& problem) {
    throw UserError(concat(what, "but ", problem.what()));
  }
  return *chat;
}

/// Returns the hash of a text and of the rules by which its lines are read.
std::string hash_with_rules(const Corpus& corpus, const CorpusFacts& facts) {
  // A line with an instruction was a text before instructions were known.
  const bool has_instructions = facts.kind == Example::Kind::instruction;
  const std::string rules =
      concat(corpus.columns.text(), corpus.chat ? concat("\n", corpus.chat->text()) : "",
             has_instructions ? "\ninstruction" : "");
  return hash_text(rules.empty() ? facts.hash : hash_of(concat(hash_text(facts.hash), "\n", rules)));
}

/// Encodes a corpus. If that fails, perhaps because it has changed, the next start reads all of it again.
void encode_as_measured(const Tokenizer& tokenizer, const Corpus& corpus, const CorpusFacts& facts,
                        detail::ThreadPool& pool, const TakeIds& take) {
  try {
    require(encode_corpus(tokenizer, corpus, pool, take) == facts.hash, option_name("dataset"), ": ",
            corpus.source, " has changed since it was read; start again");
  } catch (const Error&) {
    forget_facts(corpus);
    throw;
  }
}

/// A text that rank 0 has found and read.
struct FoundText {
  Corpus corpus;
  CorpusFacts facts;
};

/// Finds and reads a text. data.columns names the columns of examples.
FoundText find_text(const std::variant<NamedText, std::string>& dataset, const TextOptions& text) {
  FoundText found{.corpus = resolve_corpus(dataset), .facts = {}};
  if (!text.columns.empty() && found.corpus.kind == Corpus::Kind::examples)
    found.corpus.columns = columns_of(text.columns);
  found.facts = facts_of(found.corpus);
  return found;
}

/// Gives a text of conversations their template. Throws UserError as chat_template_for() does.
void choose_chat_template(const TextOptions& text, const TextReader& reader, FoundText& found,
                          const Tokenizer& tokenizer) {
  if (found.facts.kind == Example::Kind::conversation)
    found.corpus.chat = chat_template_for(text, reader, found.corpus, tokenizer);
}

/// Returns the ids of a text on all ranks. Rank 0 has found it.
SharedText share_text(const FoundText& found, const Tokenizer& tokenizer, int threads, const World& world) {
  const auto& [corpus, facts] = found;
  SharedText shared{.image = {}, .description = {}, .hash = {}};
  if (world.is_first()) {
    shared.description = describe(corpus, facts);
    shared.hash = hash_with_rules(corpus, facts);
  }
  for (std::string* text : {&shared.description, &shared.hash})
    *text = world.communicator().broadcast_text(*text, 0);
  const bool has_examples = world.communicator().broadcast_value(corpus.kind == Corpus::Kind::examples, 0);
  const TokenLayout layout{.key = hash_of(concat(has_examples ? "examples " : "text ", shared.hash, " ",
                                                 tokenizer_hash(tokenizer))),
                           .vocabulary_size = tokenizer.vocabulary_size(),
                           .answers = has_examples ? facts.answers : 0};
  const auto encode = [&](const TakeIds& take) {
    detail::ThreadPool pool(threads);
    encode_as_measured(tokenizer, found.corpus, found.facts, pool, take);
  };
  const bool is_small = world.communicator().on_every_rank(facts.bytes < least_cached_bytes);
  shared.image = is_small ? broadcast_tokens(world, layout, encode) : shared_tokens(world, layout, encode);
  return shared;
}

/// Calls a function that reads the text of data.validation. Its errors then name that key.
template <class Call>
auto for_validation(Call call) {
  try {
    return call();
  } catch (const UserError& problem) {
    const std::string text = problem.what(), usual = option_name("dataset");
    throw UserError(text.starts_with(usual) ? option_name("validation") + text.substr(usual.size()) : text);
  }
}

}  // namespace

std::string tokenizer_hash(const Tokenizer& tokenizer) {
  const auto id_of = [](std::optional<int32_t> id) { return id ? std::to_string(*id) : "none"; };
  return hash_text(hash_of(concat(tokenizer.to_json(), " ", id_of(tokenizer.beginning_of_text()), " ",
                                  id_of(tokenizer.end_of_text()))));
}

std::string tokenizer_name(const TextOptions& text) { return value_of(text, "data.tokenizer"); }

SharedTexts share_texts(const TextOptions& text, const TextReader& reader, const World& world,
                        const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  const bool has_validation = has_validation_text(text);
  FoundText dataset, validation;
  std::string json, config_json;
  on_first_rank(world, [&] {
    dataset = find_text(text.dataset, text);
    if (has_validation) validation = for_validation([&] { return find_text(text.validation, text); });
    // A split of one text has all of its characters, too.
    const std::string alphabet = dataset.facts.alphabet + validation.facts.alphabet;
    const auto tokenizer = tokenizer_for(text, reader, alphabet, model_tokenizer);
    json = tokenizer->to_json();
    config_json = tokenizer_config_json(*tokenizer);
    choose_chat_template(text, reader, dataset, *tokenizer);
    for_validation([&] { choose_chat_template(text, reader, validation, *tokenizer); });
  });
  for (std::string* shared : {&json, &config_json}) *shared = world.communicator().broadcast_text(*shared, 0);
  SharedTexts texts{.tokenizer = tokenizer_from_json(json, "the tokenizer of rank 0", config_json),
                    .dataset = {}};
  const int threads = std::max(1, std::min(available_cores(), reader.threads * world.local_size()));
  texts.dataset = share_text(dataset, *texts.tokenizer, threads, world);
  if (has_validation)
    texts.validation =
        for_validation([&] { return share_text(validation, *texts.tokenizer, threads, world); });
  return texts;
}

}  // namespace lockstep
