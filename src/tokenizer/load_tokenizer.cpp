// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/load_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t largest_file = 512ull << 20;

std::string read_file(const std::string& path) {
  std::error_code problem;
  const uintmax_t bytes = fs::file_size(path, problem);
  require(!problem, "cannot read ", path, ": ", problem.message());
  require(bytes <= largest_file, path, " has ", bytes, " bytes, more than any tokenizer");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  require(file.good(), "cannot read ", path);
  return text.str();
}

std::shared_ptr<const Tokenizer> characters_from(const TokenizerFile& file, const std::string& origin) {
  std::string text;
  for (const auto& [token, id] : file.vocabulary) text += token;
  const auto tokenizer = std::make_shared<CharTokenizer>(text);
  // Equal only if every token is one character, and ids count them in order.
  bool counts_in_order = static_cast<size_t>(tokenizer->vocabulary_size()) == file.vocabulary.size() &&
                         tokenizer->vocabulary() == text;
  for (size_t i = 0; i < file.vocabulary.size(); ++i)
    counts_in_order = counts_in_order && file.vocabulary[i].second == static_cast<int64_t>(i) &&
                      !file.vocabulary[i].first.empty();
  require(counts_in_order, origin, ": model.vocab is none of single characters, numbered in order");
  return tokenizer;
}

/// The added token of the first of these names that there is.
std::optional<int32_t> first_known(const BytePairModel& model, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const AddedToken& token : model.added)
      if (token.content == name) return token.id;
  return {};
}

/// The ends of texts by the names that they have in files that are known.
void name_ends(BytePairModel& model) {
  model.end_of_text = first_known(model, {"<|endoftext|>", "<|end_of_text|>", "</s>"});
  model.beginning_of_text = first_known(model, {"<|begin_of_text|>", "<s>", "<|endoftext|>"});
}

/// A tokenizer_config.json and what errors call it; no text: there is none.
struct ConfigText {
  std::string text, name;
};

ConfigText config_at(const std::string& path) { return {fs::exists(path) ? read_file(path) : "", path}; }

/// The ends of texts as the configuration beside the file names them.
void name_ends(BytePairModel& model, const ConfigText& config) {
  name_ends(model);
  if (config.text.empty()) return;
  const TextEnds ends = read_tokenizer_config(config.text, config.name);
  const auto id_of = [&](const std::string& name) {
    const auto found = std::find(model.tokens.begin(), model.tokens.end(), name);
    require(!name.empty() && found != model.tokens.end(), config.name, " names the token \"", name,
            "\", which the tokenizer does not have");
    return static_cast<int32_t>(found - model.tokens.begin());
  };
  if (ends.beginning) model.beginning_of_text = id_of(*ends.beginning);
  if (ends.end) model.end_of_text = id_of(*ends.end);
}

std::shared_ptr<const Tokenizer> from_json(std::string_view json, const std::string& origin,
                                           const ConfigText& config) {
  const TokenizerFile file = read_tokenizer_json(json, origin);
  if (file.model == TokenizerFile::Model::characters) return characters_from(file, origin);
  BytePairModel model = byte_pair_model(file, origin);
  name_ends(model, config);
  model.json = json;
  return std::make_shared<BytePairTokenizer>(std::move(model));
}

std::shared_ptr<const Tokenizer> from_vocabulary(const std::string& path, const std::string& merges_path,
                                                 const std::string& config_path) {
  require(fs::exists(merges_path), path, " needs its merges, but there is no ", merges_path);
  BytePairModel model = byte_pair_model(
      read_vocabulary_and_merges(read_file(path), path, read_file(merges_path), merges_path), path);
  name_ends(model, config_at(config_path));
  return std::make_shared<BytePairTokenizer>(std::move(model));
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view json, const std::string& origin,
                                                     std::string_view config_json,
                                                     const std::string& config_origin) {
  return from_json(json, origin, {std::string(config_json), config_origin});
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  if (fs::is_directory(path)) {
    const std::string whole = path + "/tokenizer.json";
    const std::string vocabulary = path + "/vocab.json";
    require(fs::exists(whole) || fs::exists(vocabulary), path,
            " holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt");
    return load_tokenizer(fs::exists(whole) ? whole : vocabulary);
  }
  require(fs::exists(path), path,
          " does not exist: a tokenizer is tokenizer.json, vocab.json with merges.txt, ",
          "a file of tiktoken's, or a folder of one of the first two");
  const std::string config = (fs::path(path).parent_path() / "tokenizer_config.json").string();
  if (path.ends_with("vocab.json"))
    return from_vocabulary(path, path.substr(0, path.size() - 10) + "merges.txt", config);
  const std::string text = read_file(path);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (path.ends_with(".json") || (first != std::string::npos && text[first] == '{'))
    return from_json(text, path, config_at(config));
  BytePairModel model = read_tiktoken(text, path);
  name_ends(model);
  return std::make_shared<BytePairTokenizer>(std::move(model));
}

}  // namespace lockstep
