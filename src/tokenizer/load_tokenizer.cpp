// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/load_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/tokenizer/byte_pair_tokenizer.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/tokenizer/tiktoken_file.h"
#include "lockstep/tokenizer/tokenizer_json.h"
#include "lockstep/tokenizer/utf8.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t largest_file = 512ull << 20;

/// Throws UserError if the system cannot tell whether there is a file, as for a link that leads to itself.
fs::file_status status_of(const std::string& path) {
  std::error_code problem;
  const fs::file_status found = fs::status(path, problem);
  require(found.type() != fs::file_type::none, "cannot read ", path, ": ", problem.message());
  return found;
}

bool exists(const std::string& path) { return fs::exists(status_of(path)); }

std::string text_in(const std::string& path) {
  std::error_code problem;
  // A pipe has no size.
  const uintmax_t bytes = fs::is_regular_file(status_of(path)) ? fs::file_size(path, problem) : 0;
  require(!problem, "cannot read ", path, ": ", problem.message());
  require(bytes <= largest_file, path, " has ", bytes, " bytes, which is too large for a tokenizer");
  return read_named_file(path);
}

std::shared_ptr<const Tokenizer> characters_from(const TokenizerFile& file, const std::string& origin) {
  std::string text;
  for (const auto& [token, id] : file.vocabulary) text += token;
  const auto tokenizer = std::make_shared<CharTokenizer>(text);
  // Both are equal only if every token is one character and the ids number them in order.
  bool counts_in_order = static_cast<size_t>(tokenizer->vocabulary_size()) == file.vocabulary.size() &&
                         tokenizer->vocabulary() == text;
  for (size_t i = 0; i < file.vocabulary.size(); ++i)
    counts_in_order = counts_in_order && file.vocabulary[i].second == static_cast<int64_t>(i) &&
                      !file.vocabulary[i].first.empty();
  require(counts_in_order, origin, ": model.vocab must have single characters, numbered in order");
  return tokenizer;
}

/// Returns the id of the first of these names that is an added token.
std::optional<int32_t> first_known(const BytePairModel& model, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const AddedToken& token : model.added)
      if (token.content == name) return token.id;
  return {};
}

/// Sets the template of conversations, and the tokens that begin and end a text: those that `config` names,
/// else those of well-known names.
void apply_roles(BytePairModel& model, const TokenizerConfig& config) {
  model.chat_template = config.chat_template;
  const auto token_of = [&](const char* role, const std::vector<std::string>& usual) {
    const auto named = config.special.find(role);
    return first_known(model,
                       named == config.special.end() ? usual : std::vector{named->second.token.content});
  };
  model.end_of_text = token_of("eos_token", {"<|endoftext|>", "<|end_of_text|>", "</s>"});
  model.beginning_of_text = token_of("bos_token", {"<|begin_of_text|>", "<s>", "<|endoftext|>"});
}

/// Reads the files next to a tokenizer, such as tokenizer_config.json.
TokenizerConfig config_beside(const fs::path& path) {
  const auto beside = [&](const char* name) { return (path.parent_path() / name).string(); };
  TokenizerConfig config;
  const std::string file = beside("tokenizer_config.json");
  if (exists(file)) config = read_tokenizer_config(text_in(file), file);
  const std::string chats = beside("chat_template.jinja");
  if (exists(chats)) config.chat_template = text_in(chats);
  // `transformers` reads the other files only if tokenizer_config.json lists no added tokens.
  if (config.has_added) return config;
  const std::string roles = beside("special_tokens_map.json");
  if (exists(roles)) read_special_tokens_map(text_in(roles), roles, config);
  const std::string added = beside("added_tokens.json");
  if (exists(added)) read_added_tokens_map(text_in(added), added, config);
  return config;
}

/// Returns the place of an added token with this content, or the end.
auto find_added(auto& added, const std::string& content) {
  return std::ranges::find_if(added, [&](const NamedToken& known) { return known.token.content == content; });
}

/// Throws UserError if `config` contradicts the tokenizer.json. A tokenizer.json is complete by itself, and
/// after a contradiction either file may be the intended one.
void require_no_contradiction(const TokenizerConfig& config, const TokenizerFile& file,
                              const std::string& origin) {
  for (const auto& [name, token] : config.added) {
    const auto known = find_added(file.added, token.content);
    require(known != file.added.end() && known->token.id == token.id, name, " gives \"",
            shortened(token.content), "\" the id ", token.id, ", which is no added token of ", origin);
  }
  for (const auto& [key, special] : config.special)
    require(find_added(file.added, special.token.content) != file.added.end(), special.name,
            " names the token \"", shortened(special.token.content), "\", which is no added token of ",
            origin);
  if (file.model == TokenizerFile::Model::byte_pairs)
    require(config.adds_prefix_space.value_or(file.adds_prefix_space) == file.adds_prefix_space,
            config.origin, ": add_prefix_space is ",
            config.adds_prefix_space.value_or(false) ? "true" : "false", ", but in ", origin, " it is not");
}

/// Makes each token with a role a special added token. Throws UserError if the tokenizer lacks the token.
void add_special_tokens(const TokenizerConfig& config, TokenizerFile& file) {
  const auto add = [&file](const AddedToken& token, const std::string& name) {
    if (const auto added = find_added(file.added, token.content); added != file.added.end()) {
      added->token.is_special = true;
      return true;
    }
    const auto known =
        std::ranges::find(file.vocabulary, token.content, &std::pair<std::string, int32_t>::first);
    if (known == file.vocabulary.end()) return false;
    file.added.push_back({name, token});
    file.added.back().token.id = known->second;
    return true;
  };
  for (const auto& [key, special] : config.special)
    require(add(special.token, special.name), special.name, " names the token \"",
            shortened(special.token.content), "\", which the tokenizer does not have");
  const AddedToken usual{.content = "<|endoftext|>", .is_special = true};
  for (const char* key : {"bos_token", "eos_token", "unk_token"})
    if (!config.named.contains(key)) add(usual, key);
}

/// Applies the files next to GPT-2's vocab.json and merges.txt, as `transformers` does.
void apply(const TokenizerConfig& config, TokenizerFile& file) {
  const std::string& type = config.tokenizer_class;
  require(type.empty() || type == "GPT2Tokenizer" || type == "GPT2TokenizerFast", config.origin,
          ": tokenizer_class is ", shortened(type),
          "; vocab.json is read for a GPT2Tokenizer only, so use a tokenizer.json");
  require(config.adds_ends.empty(), config.origin, ": ", config.adds_ends,
          " is true, which is not supported for vocab.json; use a tokenizer.json");
  file.adds_prefix_space = config.adds_prefix_space.value_or(false);
  file.added.insert(file.added.end(), config.added.begin(), config.added.end());
  add_special_tokens(config, file);
}

std::shared_ptr<const Tokenizer> from_json(std::string_view json, const std::string& origin,
                                           const TokenizerConfig& config) {
  const TokenizerFile file = read_tokenizer_json(json, origin);
  require_no_contradiction(config, file, origin);
  if (file.model == TokenizerFile::Model::characters) return characters_from(file, origin);
  BytePairModel model = byte_pair_model(file, origin);
  apply_roles(model, config);
  model.json = json;
  return std::make_shared<BytePairTokenizer>(std::move(model));
}

std::shared_ptr<const Tokenizer> from_vocabulary(const std::string& path, const std::string& folder) {
  const std::string merges = folder + "merges.txt";
  require(exists(merges), path, " needs its merges, but there is no ", merges);
  TokenizerFile file = read_vocabulary_and_merges(text_in(path), path, text_in(merges), merges);
  const TokenizerConfig config = config_beside(path);
  apply(config, file);
  BytePairModel model = byte_pair_model(file, path);
  apply_roles(model, config);
  return std::make_shared<BytePairTokenizer>(std::move(model));
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view json, const std::string& origin,
                                                     std::string_view config_json,
                                                     const std::string& config_origin,
                                                     const std::string& chat_template) {
  TokenizerConfig config;
  if (!config_json.empty()) config = read_tokenizer_config(config_json, config_origin);
  if (!chat_template.empty()) config.chat_template = chat_template;
  return from_json(json, origin, config);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  if (fs::is_directory(status_of(path))) {
    const std::string whole = path + "/tokenizer.json";
    const std::string vocabulary = path + "/vocab.json";
    require(exists(whole) || exists(vocabulary), path,
            " has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt");
    return load_tokenizer(exists(whole) ? whole : vocabulary);
  }
  require(exists(path), path, " does not exist: a tokenizer is tokenizer.json, vocab.json with merges.txt, ",
          "a *.tiktoken file, or a folder with one of the first two");
  if (path.ends_with("vocab.json")) return from_vocabulary(path, path.substr(0, path.size() - 10));
  const std::string text = text_in(path);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (path.ends_with(".json") || (first != std::string::npos && text[first] == '{'))
    return from_json(text, path, config_beside(path));
  BytePairModel model = read_tiktoken(text, path);
  apply_roles(model, {});
  return std::make_shared<BytePairTokenizer>(std::move(model));
}

}  // namespace lockstep
