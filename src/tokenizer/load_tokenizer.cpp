// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/load_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "tokenizer/char_tokenizer.h"
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

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view json, const std::string& origin) {
  return characters_from(read_tokenizer_json(json, origin), origin);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  const std::string file = fs::is_directory(path) ? path + "/tokenizer.json" : path;
  return tokenizer_from_json(read_file(file), file);
}

}  // namespace lockstep
