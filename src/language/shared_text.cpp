// SPDX-License-Identifier: Apache-2.0
#include "language/shared_text.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "data/read_corpus.h"
#include "language/known_facts.h"
#include "language/resolve_corpus.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/write_tokenizer_json.h"

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

SharedText share_text(const TextOptions& text, const TextReader& reader, const World& world,
                      const std::shared_ptr<const Tokenizer>& model_tokenizer) {
  SharedText data;
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
    data.hash = hash_text(facts.hash);
  });
  for (std::string* shared : {&json, &config_json, &data.description, &data.hash})
    *shared = world.communicator().broadcast_text(*shared, 0);
  const bool has_examples = world.communicator().broadcast_value(corpus.kind == Corpus::Kind::examples, 0);
  data.tokenizer = tokenizer_from_json(json, "the tokenizer of rank 0", config_json);
  const TokenLayout layout{.key = hash_of(concat(has_examples ? "examples " : "text ", data.hash, " ",
                                                 tokenizer_hash(*data.tokenizer))),
                           .vocabulary_size = data.tokenizer->vocabulary_size(),
                           .examples = has_examples ? facts.count : 0};
  const int threads = std::min(available_cores(), reader.threads * world.local_size());
  const auto encode = [&](const TakeIds& take) {
    ThreadPool pool(std::max(threads, 1));
    encode_as_measured(*data.tokenizer, corpus, facts, pool, take);
  };
  const bool is_small = world.communicator().on_every_rank(facts.bytes < least_cached_bytes);
  data.image = is_small ? broadcast_tokens(world, layout, encode) : shared_tokens(world, layout, encode);
  return data;
}

}  // namespace lockstep
